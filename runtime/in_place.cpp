#include "runtime/in_place.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <string>
#include <unordered_map>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using Operands = c10::ArrayRef<c10::IValue>;
using Run = std::function<void(torch::jit::Stack&)>;

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.requires_grad() &&
         !tensor.is_inference() && tensor.is_non_overlapping_and_dense() &&
         at::isFloatingType(tensor.scalar_type());
}

// ---- what has to hold of the operands, beyond one of them being free ----

// Every other tensor agrees with the overwritten one in every respect. Single elements are left
// out: kernels take them for scalars, and round those differently.
bool tensors_agree(Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten].toTensor();
  if (target.numel() == 1)
    return false;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i == overwritten || !operands[i].isTensor())
      continue;
    const auto& other = operands[i].toTensor();
    if (!is_plain(other) || other.scalar_type() != target.scalar_type() ||
        other.device() != target.device() || other.sizes() != target.sizes() ||
        other.strides() != target.strides())
      return false;
  }
  return true;
}

// In bfloat16 and half, mul_ rounds the scalar first and mul does not. A complex scalar would give
// a complex result.
bool scalars_agree(Operands operands, size_t overwritten) {
  const auto dtype = operands[overwritten].toTensor().scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble)
    return false;
  for (const auto& operand : operands) {
    if (operand.isComplexDouble())
      return false;
  }
  return true;
}

// masked_fill gives a contiguous result, as large as the larger of the two.
bool mask_fits(Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten].toTensor();
  if (!target.is_contiguous() || !operands[1].isTensor() || operands[2].isComplexDouble())
    return false;
  const auto& mask = operands[1].toTensor();
  return mask.device() == target.device() && mask.scalar_type() == at::kBool &&
         at::is_expandable_to(mask.sizes(), target.sizes());
}

// Ours, with loops for the CPU that go through memory in one order.
bool loops_apply(Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten].toTensor();
  const auto& mask = operands[1].toTensor();
  return target.device().is_cpu() && mask.device().is_cpu() && mask.sizes() == target.sizes() &&
         mask.strides() == target.strides();
}

// The same, where the mask is bits that lie as operand 2, a stride, says.
bool bits_fit(Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten].toTensor();
  return target.device().is_cpu() && target.strides() == operands[2].toIntVector();
}

// Kernels that read a row to its end before they write to it, at the places that they have read.
// Their result is contiguous. On a GPU nobody has looked.
bool rows_agree(Operands operands, size_t overwritten) {
  const auto& target = operands[overwritten].toTensor();
  return target.device().is_cpu() && target.is_contiguous() && tensors_agree(operands, overwritten);
}

// ---- which operators ----

struct Entry {
  // Name of the operator that writes: one that takes the operands and writes to the first, or
  // (`takes_output`) an overload that takes the tensor to write to as a last argument.
  std::string writer;
  std::string overload;
  bool takes_output;
  std::vector<size_t> operands;
  bool (*fits)(Operands, size_t);
};

std::unordered_map<std::string, Entry> make_table() {
  std::unordered_map<std::string, Entry> table;
  // Operators of one tensor, most with further arguments that are not tensors.
  for (const std::string op : {"relu", "gelu", "silu", "tanh", "sigmoid", "neg", "exp", "hardtanh",
                               "leaky_relu", "elu", "hardswish", "hardsigmoid", "sqrt", "rsqrt"}) {
    table["aten::" + op] = {"aten::" + op + "_", "", false, {0}, &tensors_agree};
  }
  table["aten_recompute::elu_in_place"] = {"aten::elu_", "", false, {0}, &tensors_agree};
  table["aten::softplus"] = {"aten::softplus", "out", true, {0}, &tensors_agree};
  // Of two.
  for (const std::string op : {"add", "sub", "mul", "div"})
    table["aten::" + op + ".Tensor"] = {"aten::" + op, "out", true, {0, 1}, &tensors_agree};
  for (const std::string op :
       {"threshold_backward", "silu_backward", "tanh_backward", "sigmoid_backward",
        "hardtanh_backward", "leaky_relu_backward", "softplus_backward", "hardsigmoid_backward"}) {
    table["aten::" + op] = {"aten::" + op, "grad_input", true, {0, 1}, &tensors_agree};
  }
  table["aten::elu_backward"] = {"aten::elu_backward", "grad_input", true, {0, 5}, &tensors_agree};
  // oneDNN's kernel may overwrite the gradient; of the other operand its documentation says
  // nothing.
  table["aten::gelu_backward"] = {"aten::gelu_backward", "grad_input", true, {0}, &tensors_agree};
  // Of rows, or of columns.
  for (const std::string op : {"_softmax", "_log_softmax"})
    table["aten::" + op] = {"aten::" + op, "out", true, {0}, &rows_agree};
  for (const std::string op : {"_softmax_backward_data", "_log_softmax_backward_data"})
    table["aten::" + op] = {"aten::" + op, "out", true, {0, 1}, &rows_agree};
  // Of a tensor and a scalar.
  for (const std::string op : {"add", "sub", "mul", "div"}) {
    table["aten::" + op + ".Scalar"] = {"aten::" + op + "_", "Scalar", false, {0}, &scalars_agree};
  }
  table["aten::masked_fill.Scalar"] = {"aten::masked_fill_", "Scalar", false, {0}, &mask_fits};
  table["aten_recompute::apply_dropout_mask"] = {
      "aten_recompute::apply_dropout_mask_", "", false, {0}, &loops_apply};
  table["aten_recompute::threshold_backward_bits"] = {
      "aten_recompute::threshold_backward_bits_", "", false, {0}, &bits_fit};
  return table;
}

const Entry* find_entry(const torch::jit::Node* node) {
  static const auto table = make_table();
  const auto found = table.find(qualified_operator_name(node));
  return found == table.end() ? nullptr : &found->second;
}

// The writing operator on a stack, or nothing where this version of PyTorch has none such.
Run find_writer(const Entry& entry) {
  if (const auto op =
          c10::Dispatcher::singleton().findSchema({entry.writer, entry.overload.c_str()})) {
    return [op = *op](torch::jit::Stack& stack) { op.callBoxed(stack); };
  }
  // Ours are known to the interpreter alone.
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(entry.writer))) {
    if (op->schema().overload_name() == entry.overload)
      return [run = op->getOperation()](torch::jit::Stack& stack) mutable { run(stack); };
  }
  return nullptr;
}

// Nodes without a schema are lists, tuples and casts.
bool hands_on_what_it_was_given(const torch::jit::Node* node) {
  return node->maybeSchema() == nullptr || mutates_an_argument(node) || may_alias_an_argument(node);
}

}  // namespace

void OwnMemory::add_outputs_of(const torch::jit::Node* node) {
  if (hands_on_what_it_was_given(node)) {
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

std::vector<InPlaceForm> in_place_forms(const torch::jit::Node* node) {
  const auto* entry = find_entry(node);
  if (entry == nullptr)
    return {};
  const auto writer = find_writer(*entry);
  if (!writer)
    return {};
  std::vector<InPlaceForm> forms;
  for (const auto operand : entry->operands) {
    auto run = writer;
    if (entry->takes_output) {
      run = [writer, operand, count = node->inputs().size()](torch::jit::Stack& stack) {
        stack.push_back(stack[stack.size() - count + operand]);
        writer(stack);
      };
    }
    forms.push_back({operand, std::move(run), entry->fits});
  }
  return forms;
}

bool may_overwrite(const InPlaceForm& form, Operands operands) {
  if (!operands[form.operand].isTensor())
    return false;
  const auto& target = operands[form.operand].toTensor();
  return is_plain(target) && target.use_count() == 1 && target.has_storage() &&
         target.storage().use_count() == 1 && form.fits(operands, form.operand);
}

std::vector<size_t> overwritable_operands(const torch::jit::Node* node) {
  // Sees for itself whether it holds the last reference to either.
  if (node->kind() == symbols::kAccumulate)
    return {0, 1};
  const auto* entry = find_entry(node);
  return entry == nullptr || !find_writer(*entry) ? std::vector<size_t>{} : entry->operands;
}

bool overwrites_if_tensors_agree(const torch::jit::Node* node) {
  const auto* entry = find_entry(node);
  return entry != nullptr && (entry->fits == &tensors_agree || entry->fits == &rows_agree);
}

bool overwrites_rows(const torch::jit::Node* node) {
  const auto* entry = find_entry(node);
  return entry != nullptr && entry->fits == &rows_agree;
}

}  // namespace aten_recompute
