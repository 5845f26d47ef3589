#include "passes/profile/node_description.h"

#include <torch/csrc/jit/ir/ir.h>

#include <sstream>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using c10::IValue;

constexpr int64_t kCacheLineBytes = 64;

void append(std::string& key, at::ArrayRef<int64_t> numbers) {
  key += '<';
  for (auto number : numbers) {
    key += std::to_string(number);
    key += ' ';
  }
  key += '>';
}

class KeyWriter {
 public:
  KeyWriter(DescribedStorages& storages, NodeDescription& description)
      : storages_(storages), description_(description) {}

  void add(const IValue& value) {
    auto& key = description_.key;
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isInt()) {
      append(key, value.toInt());
    } else if (value.isList()) {
      key += '[';
      add_all(value.toListRef());
      key += ']';
    } else if (value.isTuple()) {
      key += '(';
      add_all(value.toTupleRef().elements());
      key += ')';
    } else if (value.isCapsule()) {
      key += "opaque " + opaque(value).class_name;
      for (const auto& operand : opaque(value).operands)
        for_each_tensor(operand, [&](const at::Tensor& tensor) { position_of(tensor); });
    } else if (value.isGenerator() || value.isObject()) {
      key += value.tagKind();
    } else {
      std::ostringstream text;
      text << value;
      key += text.str();
    }
  }

 private:
  template <class Values>
  void add_all(const Values& values) {
    for (const auto& value : values) {
      description_.key += ',';
      add(value);
    }
  }

  void add(const at::Tensor& tensor) {
    auto& key = description_.key;
    if (!tensor.defined()) {
      key += "undefined";
      return;
    }
    const auto position = position_of(tensor);
    const auto device = storages_.device_of(tensor);
    const auto offset = tensor.storage_offset();
    const auto item_bytes = static_cast<int64_t>(tensor.element_size());
    key += c10::toString(tensor.scalar_type());
    key += tensor.is_conj() ? "*" : "";
    key += tensor.is_neg() ? "-" : "";
    append(key, tensor.sizes());
    append(key, tensor.strides());
    append(
        key,
        {static_cast<int64_t>(device.type()), device.index(), offset * item_bytes % kCacheLineBytes,
         offset - description_.memory[position].storage_offset(), static_cast<int64_t>(position)});
    append(description_.places, {offset, static_cast<int64_t>(tensor.storage().nbytes())});
  }

  // Returns the index of the tensor's storage among those of the operands.
  size_t position_of(const at::Tensor& tensor) {
    auto& memory = description_.memory;
    const auto storage = storages_.index_of(tensor);
    size_t position = 0;
    while (position < memory.size() && storages_.index_of(memory[position]) != storage)
      ++position;
    if (position == memory.size())
      memory.push_back(tensor);
    return position;
  }

  DescribedStorages& storages_;
  NodeDescription& description_;
};

}  // namespace

NodeDescription describe_node(const torch::jit::Node* node, size_t index,
                              const std::vector<IValue>& operands, DescribedStorages& storages) {
  NodeDescription description;
  auto& key = description.key;
  key = qualified_operator_name(node) + '/' + std::to_string(node->outputs().size());
  if (!node->blocks().empty())
    key += '@' + std::to_string(index);
  if (node->hasAttribute(c10::attr::Subgraph))
    key += node->g(c10::attr::Subgraph)->toString(/*print_source_locations=*/false);
  for (const auto flags : {symbols::kRequiresGrad, symbols::kIsTarget}) {
    if (node->hasAttribute(flags))
      append(key, node->is(flags));
  }
  KeyWriter writer(storages, description);
  for (const auto& operand : operands) {
    key += ';';
    writer.add(operand);
  }
  return description;
}

}  // namespace aten_recompute
