// The torch::jit backend "aten_recompute".
#include <torch/csrc/jit/backends/backend.h>
#include <torch/csrc/jit/backends/backend_preprocess.h>
#include <torch/script.h>

#include <stdexcept>
#include <string>

#include "backend/method/lowered_method.h"
#include "backend/method/share_tensors.h"
#include "common/log.h"
#include "common/parse_options.h"
#include "common/strategy_traits.h"
#include "register/spec.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {
namespace {

// A saved module carries its format, so that an older library can say that it is too old.
constexpr const char* kFormatPrefix = "aten_recompute/";
constexpr int kFormatVersion = 1;

void check_format(const std::string& format) {
  const std::string prefix = kFormatPrefix;
  int version = 0;
  if (format.rfind(prefix, 0) == 0)
    version = std::atoi(format.c_str() + prefix.size());
  if (version < 1) {
    throw std::invalid_argument("not a module lowered by aten_recompute: format \"" + format +
                                "\"");
  }
  if (version > kFormatVersion) {
    throw std::invalid_argument("this module was lowered by a newer aten_recompute (format " +
                                std::to_string(version) + ", this library reads up to format " +
                                std::to_string(kFormatVersion) + "): update the library");
  }
}

class RecomputeBackend : public torch::jit::PyTorchBackendInterface {
 public:
  bool is_available() override { return true; }

  // `processed` is (module, format). Returns one LoweredMethod per method.
  c10::impl::GenericDict compile(c10::IValue processed, c10::impl::GenericDict specs) override try {
    const auto elements = processed.toTuple();
    TORCH_CHECK(elements->elements().size() == 2, "not a module lowered by aten_recompute");
    check_format(elements->elements()[1].toStringRef());
    const auto module = elements->elements()[0].toModule();
    c10::impl::GenericDict handles(c10::StringType::get(), c10::AnyType::get());
    for (const auto& spec : specs) {
      const auto& method = spec.key().toStringRef();
      handles.insert(
          method, c10::make_intrusive<LoweredMethod>(module, method, spec_to_json(spec.value())));
    }
    return handles;
  } catch (const std::exception&) {
    rethrow_in_one_line();
  }

  c10::impl::GenericList execute(c10::IValue handle, c10::impl::GenericList inputs) override {
    std::vector<c10::IValue> values;
    values.reserve(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      values.push_back(inputs.get(i));
    inputs.clear();
    auto output = handle.toCustomClass<LoweredMethod>()->run(std::move(values));
    c10::impl::GenericList outputs(c10::AnyType::get());
    if (output.isTuple()) {
      for (const auto& element : output.toTupleRef().elements())
        outputs.push_back(element);
    } else {
      outputs.push_back(std::move(output));
    }
    return outputs;
  }
};

// Checks the specs, because an error that is raised here reaches the user unchanged. A plan file is
// read now, so that the plan itself is saved with the module and not only its path.
c10::IValue preprocess(const torch::jit::Module& module,
                       const c10::Dict<c10::IValue, c10::IValue>& specs,
                       const torch::jit::BackendDebugHandleGenerator& /*generate_debug_handles*/) {
  c10::Dict<c10::IValue, c10::IValue> plans(c10::StringType::get(), c10::AnyType::get());
  for (const auto& spec : specs) {
    const auto options = parse_options(spec_to_json(spec.value()));
    check_options(module, spec.key().toStringRef(), options);
    if (traits_of(options).follows_plan_file)
      plans.insert(spec.key(), to_json(options));
  }
  for (const auto& spec : plans)
    specs.insert_or_assign(spec.key(), spec.value());
  if (const auto copies = undo_parameter_copies(module); copies > 0) {
    log_debug(LogTopic::kGeneral,
              std::to_string(copies) + " buffers or frozen parameters are copies of the module's");
  }
  return c10::ivalue::Tuple::create(
      {module._ivalue(), kFormatPrefix + std::to_string(kFormatVersion)});
}

const auto kBackend = torch::jit::backend<RecomputeBackend>("aten_recompute");
const auto kBackendPreprocess =
    torch::jit::backend_preprocess_register("aten_recompute", preprocess);

}  // namespace
}  // namespace aten_recompute
