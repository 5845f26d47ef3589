#include "ir/memory_reuse.h"

#include <ATen/ExpandUtils.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using Kind = OperandLayout::Kind;
using Operands = c10::ArrayRef<OperandLayout>;

bool has_size_one(at::IntArrayRef sizes) {
  return std::find(sizes.begin(), sizes.end(), 1) != sizes.end();
}

bool are_of_new_tensor(at::IntArrayRef strides, at::IntArrayRef sizes) {
  return strides == at::IntArrayRef(c10::contiguous_strides(sizes));
}

// Returns whether ATen gives an elementwise result these strides if all its tensors have them
// (TensorIterator.cpp, compute_fast_setup_type()): it asks for a format first, and a tensor may
// have the format in spite of other strides where a size is 1.
bool elementwise_keeps_strides(const at::Tensor& tensor) {
  if (tensor.is_contiguous())
    return are_of_new_tensor(tensor.strides(), tensor.sizes());
  if (tensor.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    return tensor.strides() == at::IntArrayRef(c10::get_channels_last_strides_2d(tensor.sizes()));
  }
  return true;
}

// Tensors of one element are excluded: kernels treat them as scalars, which are rounded
// differently.
bool tensors_agree(Operands operands, const OperandLayout& target) {
  if (target.num_elements() == 1 || !target.keeps_strides)
    return false;
  return std::all_of(operands.begin(), operands.end(), [&](const OperandLayout& other) {
    return other.kind != Kind::kTensor ||
           (other.is_plain && other.dtype == target.dtype && other.device == target.device &&
            other.sizes == target.sizes && other.strides == target.strides);
  });
}

// Only kernels of the CPU are known to read a whole row before they write to it. Their results are
// contiguous.
bool rows_agree(Operands operands, const OperandLayout& target) {
  return target.device.is_cpu() && target.is_contiguous && tensors_agree(operands, target);
}

bool any_complex_number(Operands operands) {
  return std::any_of(operands.begin(), operands.end(), [](const OperandLayout& operand) {
    return operand.kind == Kind::kComplexNumber;
  });
}

// For bfloat16 and half, mul_ rounds the scalar first and mul does not. A complex scalar would give
// a complex result.
bool scalars_agree(Operands operands, const OperandLayout& target) {
  return (target.dtype == at::kFloat || target.dtype == at::kDouble) &&
         !any_complex_number(operands) &&
         number_keeps_strides(target.sizes, target.strides, target.is_contiguous);
}

// The result of masked_fill is contiguous and has the broadcast sizes of both operands.
bool mask_fits(Operands operands, const OperandLayout& target) {
  const auto& mask = operands[1];
  return target.is_contiguous && target.keeps_strides && mask.kind == Kind::kTensor &&
         !any_complex_number(operands) && mask.device == target.device && mask.dtype == at::kBool &&
         at::is_expandable_to(mask.sizes, target.sizes);
}

// This project's loops for the CPU go through all tensors in memory order.
bool loops_apply(Operands operands, const OperandLayout& target) {
  const auto& mask = operands[1];
  return target.keeps_strides && mask.kind == Kind::kTensor && target.device.is_cpu() &&
         mask.device.is_cpu() && mask.sizes == target.sizes && mask.strides == target.strides;
}

// The mask is stored as bits in the memory order that operand 2, a stride, describes.
bool bits_fit(Operands operands, const OperandLayout& target) {
  return target.device.is_cpu() && operands[2].kind == Kind::kIntegers &&
         target.strides == at::IntArrayRef(operands[2].integers);
}

// Returns whether a result of both tensors lies in the order of the second one, which is dense:
// ATen orders dimensions by the strides of the first one where these are not 0.
bool orders_agree(const OperandLayout& first, const OperandLayout& second) {
  if (has_size_one(second.sizes))
    return false;
  const auto& a = first.strides;
  const auto& b = second.strides;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (a[i] != 0 && a[j] != 0 && a[i] != a[j] && (a[i] < a[j]) != (b[i] < b[j]))
        return false;
    }
  }
  return true;
}

// This is the condition under which eager's engine adds a gradient to another in place: to the one
// that it has. The other may take the sum only where a new tensor would have its layout.
bool sums_agree(Operands operands, const OperandLayout& target) {
  if (&target != &operands[0] &&
      !(operands[0].is_dense ? target.strides == operands[0].strides && target.keeps_strides
                             : orders_agree(operands[0], target)))
    return false;
  return std::all_of(operands.begin(), operands.end(), [&](const OperandLayout& other) {
    return other.kind == Kind::kTensor && other.sizes == target.sizes &&
           other.dtype == target.dtype && other.device == target.device;
  });
}

// Returns whether outputs may share memory with operands. Nodes without a schema are lists, tuples
// and casts.
bool passes_on_its_arguments(const torch::jit::Node* node) {
  return node->maybeSchema() == nullptr || mutates_an_argument(node) || may_alias_an_argument(node);
}

}  // namespace

void OwnMemory::add_outputs_of(const torch::jit::Node* node) {
  if (passes_on_its_arguments(node)) {
    for (const auto* input : node->inputs()) {
      if (contains_tensor(*input->type()) && !contains(input))
        return;
    }
  }
  if (node->kind() == symbols::kTapeForward || node->kind() == symbols::kTapeBackward ||
      !node->blocks().empty())
    return;
  values_.insert(node->outputs().begin(), node->outputs().end());
}

OperandLayout layout_of(const at::Tensor& tensor, at::Device device) {
  OperandLayout layout;
  if (!tensor.defined() || tensor.layout() != at::kStrided)
    return layout;
  layout.kind = Kind::kTensor;
  layout.sizes = tensor.sizes();
  layout.strides = tensor.strides();
  layout.dtype = tensor.scalar_type();
  layout.device = device;
  layout.is_contiguous = tensor.is_contiguous();
  layout.is_dense = tensor.is_non_overlapping_and_dense();
  layout.keeps_strides = elementwise_keeps_strides(tensor);
  layout.fills_memory = tensor.has_storage() && tensor.storage().nbytes() <= tensor.nbytes();
  layout.is_plain = layout.is_dense && !tensor.requires_grad() && !tensor.is_inference() &&
                    at::isFloatingType(layout.dtype);
  return layout;
}

OperandLayout layout_of(const c10::IValue& operand) {
  if (operand.isTensor()) {
    const auto& tensor = operand.toTensor();
    return tensor.defined() ? layout_of(tensor, tensor.device()) : OperandLayout();
  }
  OperandLayout layout;
  if (operand.isComplexDouble()) {
    layout.kind = Kind::kComplexNumber;
  } else if (operand.isIntList()) {
    layout.kind = Kind::kIntegers;
    layout.integers = operand.toIntVector();
  }
  return layout;
}

bool number_keeps_strides(at::IntArrayRef sizes, at::IntArrayRef strides, bool is_contiguous) {
  return is_contiguous ? are_of_new_tensor(strides, sizes) : !has_size_one(sizes);
}

bool layouts_allow_overwriting(ReuseCondition condition, Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten];
  const bool only_dense = condition == ReuseCondition::kSumsAgree;
  if (target.kind != Kind::kTensor || !target.fills_memory ||
      !(only_dense ? target.is_dense : target.is_plain))
    return false;
  switch (condition) {
    case ReuseCondition::kTensorsAgree:
      return tensors_agree(operands, target);
    case ReuseCondition::kRowsAgree:
      return rows_agree(operands, target);
    case ReuseCondition::kScalarsAgree:
      return scalars_agree(operands, target);
    case ReuseCondition::kMaskFits:
      return mask_fits(operands, target);
    case ReuseCondition::kLoopsApply:
      return loops_apply(operands, target);
    case ReuseCondition::kBitsFit:
      return bits_fit(operands, target);
    case ReuseCondition::kPartIsPutIn:
      return true;
    case ReuseCondition::kSumsAgree:
      return sums_agree(operands, target);
  }
  return false;
}

bool is_only_reference(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
}

}  // namespace aten_recompute
