// What is known of operators beyond what their schemas and PyTorch's tags say: one table, one row
// per operator (ir/operator_facts.cpp). Everything that asks "is this operator one of ..." asks
// here; ir/node_traits.h answers for nodes what follows from schema, tags, registered rules and
// this table together.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

enum class Fact : uint8_t {
  // ---- memory ----
  // Returns a view of an argument or a copy of it, as the argument needs.
  kMayCopy,
  // Returns its argument itself where the type, and the device, are already as asked for.
  kReturnsArgumentOfSameType,
  // Returns its argument itself where sizes and strides are already as asked for.
  kReturnsArgumentOfSameLayout,
  // Puts tensors into a container, takes them out, or casts their type; no tensor is computed.
  kMovesValues,
  // Gives a value another static type, as TorchScript wants it; eager has no such operator.
  kCast,
  // The identity, which a program calls to tell a plan something.
  kMarker,

  // ---- gradients ----
  // derivatives.yaml has output_differentiability [False], or no floating-point tensor is returned.
  kNotDifferentiable,
  // Of several outputs only some have a gradient, because the formulas of derivatives.yaml read no
  // other, or because output_differentiability says so.
  kOnlyFirstOutputDifferentiable,
  kOnlyFirstTwoOutputsDifferentiable,
  kFirstOutputNotDifferentiable,
  // The gradient formula of the operator that writes to its argument reads what it leaves there,
  // and not what it was given.
  kInPlaceGradientReadsResult,

  // ---- effects ----
  // Draws random numbers; the schema is older than PyTorch's tag for it, or the operator is ours.
  kRandom,
  // Updates running statistics, which its schema does not say.
  kUpdatesStatistics,
  // Asks autograd about a tensor or about the current mode.
  kAsksAutograd,
  // Runs autograd from inside of the method, or reads what that left.
  kRunsAutograd,
  // A dropout, which is the identity outside of training.
  kDropout,

  // ---- sizes ----
  // Reads nothing of its first operand but sizes, strides, type and device, and the result shares
  // no memory with it.
  kReadsMetadataOnly,
  // What the operand holds decides a size or a number; PyTorch has no tag on the operator.
  kReadsData,
  // The result is known without running anything, from the operands' metadata.
  kKnownFromMetadata,
  // The same, but from the metadata of tensors that have memory.
  kKnownFromRealTensor,
  // Traced modules compute sizes with it, in tensors of one number.
  kComputesWithSizes,
  // The result has the rank of the first operand.
  kKeepsRank,
  // The result has the larger of the two operands' ranks.
  kBroadcastsRanks,

  // ---- cost ----
  // min_cut's default list of operators that may run again (besides what is tagged pointwise).
  kCheap,
  // min_cut's default list of operators that never run again.
  kComputeIntensive,
  // Joins tensors to one.
  kConcatenates,
};

// How many floating-point operations one run does (passes/profile/flops.h).
enum class FlopFormula : uint8_t {
  kPerElement,       // one per element of the results
  kProduct,          // of the matrices that are operands 0 and 1
  kProductPlusBias,  // of operands 1 and 2
  kConvolution,
  kTransposedConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
};

// What has to hold of the operands, beside that the overwritten one is free, for the result to be
// written into its memory with equal bits, sizes and strides (ir/memory_reuse.h).
enum class ReuseCondition : uint8_t {
  kTensorsAgree,  // all tensors have the same sizes, strides, type and device; not one element
                  // alone
  kRowsAgree,  // the same; they are contiguous, and on the CPU: the kernel reads a row to its end
               // before it writes to it
  kScalarsAgree,  // float32 or float64, and no complex scalar: others round the scalar first
  kMaskFits,      // operand 1 is a mask that broadcasts to a contiguous operand 0
  kLoopsApply,    // both on the CPU, and the mask, operand 1, lies as operand 0
  kBitsFit,       // on the CPU; operand 2 is the stride of operand 0
  kSumsAgree,     // two tensors of the same sizes, type and device; the overwritten one has no gaps
};

// How an operator's result is computed into the memory of one of its operands.
struct OverwritingForm {
  // The operator that writes; empty where the operator itself looks for a free operand. It takes
  // the operands, and writes to the first or, with `takes_output`, to a tensor that is passed as a
  // last argument.
  std::string writer;
  std::string overload;
  bool takes_output = false;
  std::vector<size_t> operands;  // those that it may overwrite, the best first
  ReuseCondition condition = ReuseCondition::kTensorsAgree;
};

struct OperatorFacts {
  uint64_t facts = 0;  // bit k: Fact number k
  FlopFormula flops = FlopFormula::kPerElement;
  std::optional<OverwritingForm> overwriting;

  bool has(Fact fact) const { return (facts >> static_cast<unsigned>(fact) & 1U) != 0; }
};

// What the table says of the node's operator; empty for an operator without a row. Thread-safe.
const OperatorFacts& operator_facts(const torch::jit::Node* node);

bool has_fact(const torch::jit::Node* node, Fact fact);

// How the node's overload computes its result into an operand's memory, or nullptr.
const OverwritingForm* overwriting_form(const torch::jit::Node* node);

// Names of the operators of which this holds, sorted: "relu" for aten::relu, other namespaces in
// full.
std::vector<std::string> operators_with(Fact fact);

// Whether the autograd node of this name, of LibTorch's own, returns a view of the gradient with as
// many elements: the backward of a view that shows all elements.
bool is_backward_of_whole_view(const std::string& autograd_node);

}  // namespace aten_recompute
