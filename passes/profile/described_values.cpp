#include "passes/profile/described_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_names.h"
#include "ir/node_traits.h"

namespace aten_recompute {

using c10::IValue;

bool is_opaque(const IValue& value) {
  return value.isCapsule() || value.isObject() || value.isCustomClass();
}

const Opaque& opaque(const IValue& value) {
  return static_cast<const Opaque&>(*value.toCapsule());
}

bool has_tensor(const IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined();
  if (value.isList()) {
    for (const auto& element : value.toListRef()) {
      if (has_tensor(element))
        return true;
    }
  }
  if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) {
      if (has_tensor(element))
        return true;
    }
  }
  return is_opaque(value);
}

void check_is_plain_tensor(const at::Tensor& tensor, const torch::jit::Node* node) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized(),
      "aten_recompute: the profile cannot describe a tensor of layout ", tensor.layout(),
      " or type ", tensor.scalar_type(), ", result or operand of ", qualified_operator_name(node),
      "; use another strategy than budget or min_cut");
}

int32_t DescribedStorages::index_of(const at::Tensor& tensor, bool callers,
                                    std::optional<at::Device> device) {
  const void* key = tensor.storage().unsafeGetStorageImpl();
  const auto index = static_cast<int32_t>(bytes_.size());
  const auto [found, is_new] = index_.emplace(key, index);
  if (!is_new)
    return found->second;
  bytes_.push_back(static_cast<int64_t>(tensor.storage().nbytes()));
  is_callers_.push_back(callers || !device.has_value());
  devices_.push_back(device.value_or(tensor.device()));
  keep_alive_.push_back(tensor);
  return index;
}

}  // namespace aten_recompute
