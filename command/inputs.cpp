#include "command/inputs.h"

#include <aten_recompute/one_line.h>

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "command/failure.h"

namespace aten_recompute::command {
namespace {

using c10::IValue;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 13> kTypes{{
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"int64", at::kLong},
    {"int32", at::kInt},
    {"int16", at::kShort},
    {"int8", at::kChar},
    {"uint8", at::kByte},
    {"bool", at::kBool},
    {"complex64", at::kComplexFloat},
    {"complex128", at::kComplexDouble},
    {"float", at::kFloat},
}};

// A tensor that is given by its type and sizes.
struct TensorText {
  at::ScalarType type;
  std::vector<int64_t> sizes;
  std::optional<int64_t> limit;  // of random integers
};

[[noreturn]] void refuse_input(const std::string& text, const std::string& why) {
  throw Failure(Exit::kBadArguments, "--input " + text + ": " + why);
}

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

at::ScalarType read_type(const std::string& text, std::string_view name) {
  std::string names;
  for (const auto& [known, type] : kTypes) {
    if (known == name)
      return type;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  refuse_input(text, "\"" + std::string(name) + "\" is no type of tensors; types are " + names);
}

std::vector<int64_t> read_sizes(const std::string& text, std::string_view inside) {
  std::vector<int64_t> sizes;
  // No tensor has more bytes than a signed number can count; 16 are those of complex128.
  int64_t room = std::numeric_limits<int64_t>::max() / 16;
  while (!inside.empty()) {
    const auto comma = inside.find(',');
    auto piece = inside.substr(0, comma);
    while (!piece.empty() && piece.front() == ' ')
      piece.remove_prefix(1);
    const auto size = read_number<int64_t>(piece);
    if (!size || *size < 0 || (comma != inside.npos && comma + 1 == inside.size()))
      refuse_input(
          text, "sizes are whole numbers with commas between them, such as float32[8,3,224,224]");
    if (*size > 0) {
      room /= *size;
      if (room == 0)
        refuse_input(text, "the tensor has more elements than can be counted");
    }
    sizes.push_back(*size);
    inside.remove_prefix(comma == inside.npos ? inside.size() : comma + 1);
  }
  return sizes;
}

// Returns nothing if the text is no tensor.
std::optional<TensorText> read_tensor(const std::string& text) {
  const std::string_view view = text;
  const auto open = view.find('[');
  const auto close = view.find(']');
  if (open == view.npos || close == view.npos || close < open)
    return std::nullopt;
  TensorText tensor{read_type(text, view.substr(0, open)),
                    read_sizes(text, view.substr(open + 1, close - open - 1)), std::nullopt};
  const auto rest = view.substr(close + 1);
  if (rest.empty())
    return tensor;
  if (rest.front() != ':')
    refuse_input(text, "nothing but : and a limit may follow the sizes");
  tensor.limit = read_number<int64_t>(rest.substr(1));
  if (!tensor.limit || *tensor.limit < 1)
    refuse_input(text,
                 "the limit of random integers is a whole number above 0, as in int64[8,512]:1000");
  if (!at::isIntegralType(tensor.type, /*includeBool=*/false))
    refuse_input(text, "only integers have a limit");
  return tensor;
}

at::Tensor make_tensor(const TensorText& text, Tensors tensors) {
  if (tensors == Tensors::kDescribed)
    return torch::empty(text.sizes, torch::dtype(text.type).device(at::kMeta));
  if (text.limit)
    return torch::randint(*text.limit, text.sizes, torch::dtype(text.type));
  if (at::isIntegralType(text.type, /*includeBool=*/true))
    return torch::zeros(text.sizes, torch::dtype(text.type));
  return torch::randn(text.sizes, torch::dtype(text.type));
}

std::optional<IValue> read_scalar(const std::string& text) {
  if (text == "none")
    return IValue();
  if (text == "true" || text == "false")
    return IValue(text == "true");
  if (const auto number = read_number<int64_t>(text))
    return IValue(*number);
  if (const auto number = read_number<double>(text))
    return IValue(*number);
  return std::nullopt;
}

// Appends the tensor in the file, or the elements of its list or tuple.
void read_inputs(const std::string& path, std::vector<IValue>& inputs) {
  const auto content = read_file(path);
  IValue value;
  try {
    value = torch::jit::pickle_load({content.begin(), content.end()});
  } catch (const std::exception& error) {
    const auto why = one_line(error);
    // The reader of archives has understood the file, and that of pickles not what is in it.
    if (why.rfind("PytorchStreamReader", 0) != 0)
      throw Failure(Exit::kBadFile, path + ": holds neither a tensor nor a list of them");
    throw Failure(Exit::kBadFile, path + ": not tensors that torch.save wrote: " + why);
  }
  if (value.isTensor()) {
    inputs.push_back(value);
  } else if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements())
      inputs.push_back(each);
  } else if (value.isList()) {
    for (const IValue& each : value.toListRef())
      inputs.push_back(each);
  } else {
    throw Failure(Exit::kBadFile,
                  path + ": holds neither a tensor nor a list of them, but " + value.tagKind());
  }
}

// Returns K of "bundled:K", 0 for "bundled", and nothing for another text.
std::optional<size_t> read_bundled(const std::string& text) {
  constexpr std::string_view kName = "bundled";
  if (text.rfind(kName, 0) != 0)
    return std::nullopt;
  if (text.size() == kName.size())
    return 0;
  if (text[kName.size()] != ':')
    return std::nullopt;
  const auto number = read_number<size_t>(std::string_view(text).substr(kName.size() + 1));
  if (!number)
    refuse_input(text, "the number of an example follows, as in bundled:1");
  return number;
}

// Appends the arguments of an example that torch.utils.bundled_inputs stored in the module.
void take_bundled(const torch::jit::Module& module, const std::string& method,
                  const std::string& text, size_t index, Tensors tensors,
                  std::vector<IValue>& inputs) {
  auto stored = module.find_method("get_all_bundled_inputs_for_" + method);
  if (!stored && method == "forward")
    stored = module.find_method("get_all_bundled_inputs");
  if (!stored) {
    refuse_input(text, "the module holds no examples for " + method +
                           "; torch.utils.bundled_inputs stores some");
  }
  IValue examples;
  try {
    examples = (*stored)(std::vector<IValue>{});
  } catch (const std::exception& error) {
    refuse_input(text, stored->name() + " of the module raises: " + one_line(error));
  }
  if (!examples.isList())
    refuse_input(text, stored->name() + " of the module returns no list");
  const auto& list = examples.toListRef();
  if (index >= list.size()) {
    refuse_input(text, "the module holds " + std::to_string(list.size()) + " example" +
                           (list.size() == 1 ? "" : "s") + " for " + method + ", counted from 0");
  }
  if (!list[index].isTuple())
    refuse_input(text, stored->name() + " of the module returns no list of tuples");
  for (const auto& each : list[index].toTupleRef().elements()) {
    inputs.push_back(tensors == Tensors::kDescribed && each.isTensor()
                         ? IValue(each.toTensor().to(at::kMeta))
                         : each);
  }
}

// Returns whether all values may stand where the type is expected.
bool are_of_type(const std::vector<IValue>& values, const c10::Type& type) {
  return std::all_of(values.begin(), values.end(),
                     [&](const IValue& value) { return value.type()->isSubtypeOf(type); });
}

// Returns the value with the element types that the method expects: a file does not say of which
// type the elements of a list or a dict are. What does not fit stays as it is.
IValue with_element_types(const IValue& value, const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>())
    return value.isNone() ? value : with_element_types(value, optional->getElementType());
  if (const auto list = type->cast<c10::ListType>(); list && value.isList()) {
    std::vector<IValue> elements;
    for (const IValue& each : value.toListRef())
      elements.push_back(with_element_types(each, list->getElementType()));
    if (!are_of_type(elements, *list->getElementType()))
      return value;
    c10::impl::GenericList typed(list->getElementType());
    for (auto& each : elements)
      typed.push_back(std::move(each));
    return typed;
  }
  if (const auto dict = type->cast<c10::DictType>(); dict && value.isGenericDict()) {
    std::vector<IValue> keys, elements;
    for (const auto& each : value.toGenericDict()) {
      keys.push_back(each.key());
      elements.push_back(with_element_types(each.value(), dict->getValueType()));
    }
    if (!are_of_type(keys, *dict->getKeyType()) || !are_of_type(elements, *dict->getValueType()))
      return value;
    c10::impl::GenericDict typed(dict->getKeyType(), dict->getValueType());
    for (size_t i = 0; i < keys.size(); ++i)
      typed.insert(std::move(keys[i]), std::move(elements[i]));
    return typed;
  }
  const auto tuple = type->cast<c10::TupleType>();
  if (tuple && value.isTuple() &&
      value.toTupleRef().elements().size() == tuple->elements().size()) {
    std::vector<IValue> elements;
    for (const auto& each : value.toTupleRef().elements())
      elements.push_back(with_element_types(each, tuple->elements()[elements.size()]));
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  return value;
}

// Throws Failure(kBadArguments) if the method does not take these arguments.
void check_inputs(const torch::jit::Method& method, const std::vector<IValue>& inputs) {
  const auto& schema = method.function().getSchema();
  std::string arguments;
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    arguments += (i == 1 ? "" : ", ") + argument.name() + ": " + argument.type()->annotation_str();
  }
  const auto signature = method.name() + "(" + arguments + ")";
  if (inputs.size() >= schema.arguments().size())
    throw Failure(Exit::kBadArguments, "--input: " + std::to_string(inputs.size()) +
                                           " values are too many for " + signature);
  std::vector<IValue> stack{method.owner()._ivalue()};
  stack.insert(stack.end(), inputs.begin(), inputs.end());
  try {
    schema.checkAndNormalizeInputs(stack, {});
  } catch (const std::exception& error) {
    auto why = one_line(error);
    for (const char* end : {" Declaration:", " Position:"})
      why.erase(std::min(why.find(end), why.size()));
    throw Failure(Exit::kBadArguments, "--input: " + why + " The method is " + signature);
  }
}

}  // namespace

std::vector<IValue> make_inputs(const torch::jit::Module& module, const std::string& method,
                                const std::vector<std::string>& texts, Tensors tensors) {
  const auto called = find_method(module, method);
  std::vector<IValue> inputs;
  for (const auto& text : texts) {
    std::error_code no_name;
    if (const auto tensor = read_tensor(text))
      inputs.emplace_back(make_tensor(*tensor, tensors));
    else if (auto scalar = read_scalar(text))
      inputs.push_back(*std::move(scalar));
    else if (std::filesystem::exists(text, no_name))
      read_inputs(text, inputs);
    else if (const auto index = read_bundled(text))
      take_bundled(module, method, text, *index, tensors, inputs);
    else
      refuse_input(text,
                   "neither a tensor such as float32[8,3,224,224], a number, true, false or none, "
                   "nor a file, nor bundled");
  }
  const auto& expected = called.function().getSchema().arguments();
  for (size_t i = 0; i < inputs.size() && i + 1 < expected.size(); ++i)
    inputs[i] = with_element_types(inputs[i], expected[i + 1].type());
  check_inputs(called, inputs);
  return inputs;
}

}  // namespace aten_recompute::command
