// What is known about operators beyond their schemas and PyTorch's tags. It is one table with one
// row per operator (ir/operator_facts.cpp). Other files name only operators that they translate one
// by one: rules, views in passes/frontend/path/path_memory.cpp, and operators on lists in
// passes/frontend/rewrites/functionalize_lists.cpp. ir/node_traits.h combines the table with
// schemas, tags and registered rules.
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
  // Returns a view of an argument if possible, otherwise a copy.
  kMayCopy,
  // Takes a list of tensors. Returns a view of the only one if possible; of several ones it makes a
  // new tensor.
  kMayCopyOnlyElement,
  // Returns the argument itself if it already has the requested type and device.
  kReturnsArgumentOfSameType,
  // Returns the argument itself if it already has the requested sizes and strides.
  kReturnsArgumentOfSameLayout,
  // Is composed of operators of which several read its first argument, converted to the type that
  // they compute in; they read the argument itself if it already has that type.
  kConvertsForItsParts,
  // Puts tensors into a container, takes them out, or changes their static type; computes no
  // tensor.
  kMovesValues,
  // Gives a value another static type, which TorchScript needs; eager mode has no such operator.
  kCast,
  // An operator of this project that runs operators of PyTorch, so that autograd differentiates it.
  kComposed,
  // Is the identity. Programs call it to tell a plan something.
  kMarker,

  // Has no gradient: derivatives.yaml has output_differentiability [False], or the operator returns
  // no floating-point tensor.
  kNotDifferentiable,
  // Only some of several outputs have a gradient, because the formulas of derivatives.yaml read no
  // others, or because of output_differentiability.
  kOnlyFirstOutputDifferentiable,
  kOnlyFirstTwoOutputsDifferentiable,
  kFirstOutputNotDifferentiable,
  // Writes to its argument, and is not the functional operator on it: its gradient formula reads
  // the result instead of the original argument, or on a GPU it draws other random numbers.
  kDiffersInPlace,

  // Draws random numbers, but has no tag of PyTorch that says so.
  kRandom,
  // Updates running statistics although its schema declares no write.
  kUpdatesStatistics,
  // Queries the autograd state of a tensor or the current mode.
  kAsksAutograd,
  // Runs autograd inside the method, or reads the gradients that this leaves.
  kRunsAutograd,
  // Changes sizes, memory or autograd's state of its argument, not only its elements.
  kChangesTensorItself,
  // Is a dropout, which is the identity outside training.
  kDropout,

  // Reads only sizes, strides, type and device of its first operand, and the result shares no
  // memory with it.
  kReadsMetadataOnly,
  // Reads only sizes and type of its second operand, if that is a tensor.
  kReadsMetadataOfSecond,
  // Elements of an operand decide a size or a number, and no tag of PyTorch says so.
  kReadsData,
  // The result follows from rank, dtype, device and layout of the first operand.
  kFollowsFromType,
  // The result follows from the operands' metadata, without running anything.
  kKnownFromMetadata,
  // The result follows from the operands' metadata if they are tensors that have memory.
  kKnownFromRealTensor,
  // Is used by traced modules to compute sizes, in tensors of one element.
  kComputesWithSizes,
  // The rank of the result depends on sizes of the first operand.
  kRankFollowsFromSizes,
  // The result has the rank of the first operand.
  kKeepsRank,
  // The result has the larger of the two operands' ranks.
  kBroadcastsRanks,

  // Is in min_cut's default list of operators that may run again (operators tagged as pointwise
  // may, too).
  kCheap,
  // Is in min_cut's default list of operators that never run again.
  kComputeIntensive,
  // Concatenates tensors.
  kConcatenates,

  // Reads images (operand 0) with their channels last in memory as fast as others, and returns them
  // in the same layout; so do elementwise operators.
  kKeepsChannelsLast,
  // The gradient is that of few elements, spread over many in a layout of its own.
  kSpreadsGradient,
  // Returns something about the strides of its operand.
  kReadsStrides,
  // Where the dimensions of its operands lie in memory in their order, so do those of its results.
  // Elementwise operators need no such row.
  kKeepsOrder,
  // The dimensions of its results lie in memory in their order, whatever its operands are.
  kMakesOrder,

  // Reads memory that may change before the backward without a change of its version counter:
  // running statistics are written through pointers. Its results are kept.
  kReadsWhatMayChange,
};

// The number of floating-point operations of one run (passes/profile/flops.h).
enum class FlopFormula : uint8_t {
  kPerElement,       // one per element of the results
  kProduct,          // matrix product of operands 0 and 1
  kProductPlusBias,  // matrix product of operands 1 and 2
  kConvolution,
  kTransposedConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
  // A layer of a recurrent network over all time steps.
  kRecurrentLayer,
  kRecurrentLayerBackward,
  kLstmLayer,
  kLstmLayerBackward,
};

// The condition on the operands under which the result can be written into the memory of one of
// them and has the same bits, sizes and strides as in new memory (ir/memory_reuse.h). That the
// overwritten operand is not used elsewhere is required in any case.
enum class ReuseCondition : uint8_t {
  // All tensors have the same sizes, strides, type and device, and more than one element.
  kTensorsAgree,
  // As kTensorsAgree; and they are contiguous and on the CPU, where the kernel reads a whole row
  // before it writes to it.
  kRowsAgree,
  // Operand 0 is float32 or float64 (other types round the scalar first), and no scalar is complex.
  kScalarsAgree,
  // Operand 1 is a mask that broadcasts to a contiguous operand 0.
  kMaskFits,
  // Operand 0 and the mask, operand 1, are on the CPU and have the same layout.
  kLoopsApply,
  // Operand 0 is on the CPU, and operand 2 is its stride.
  kBitsFit,
  // The writer puts a part into operand 0, whose layout the result has.
  kPartIsPutIn,
  // Two tensors have the same sizes, type and device, and the overwritten one has no gaps.
  kSumsAgree,
};

// A form of an operator that computes its result into the memory of one of its operands.
struct OverwritingForm {
  // Name of the operator that writes; empty if the operator itself looks for an operand to
  // overwrite. The writer takes the same operands, and writes to the first one or, with
  // `takes_output`, to a tensor that is passed as an additional last argument.
  std::string writer;
  std::string overload;
  bool takes_output = false;
  std::vector<size_t> operands;  // indices of those it may overwrite, the best first
  ReuseCondition condition = ReuseCondition::kTensorsAgree;
};

struct OperatorFacts {
  uint64_t facts = 0;  // bit k is set if Fact number k holds
  FlopFormula flops = FlopFormula::kPerElement;
  std::optional<OverwritingForm> overwriting;

  bool has(Fact fact) const { return (facts >> static_cast<unsigned>(fact) & 1U) != 0; }
};

// Returns the facts about the node's operator; they are empty for an operator without a row.
// Thread-safe.
const OperatorFacts& operator_facts(const torch::jit::Node* node);

// Returns whether the fact holds for the node's operator.
bool has_fact(const torch::jit::Node* node, Fact fact);

// Returns how the node's overload computes its result into an operand's memory, or nullptr if it
// cannot.
const OverwritingForm* overwriting_form(const torch::jit::Node* node);

// Returns the sorted names of the operators with this fact: "relu" for aten::relu, full names in
// other namespaces.
std::vector<std::string> operators_with(Fact fact);

// Returns the names of the table's rows as they are written there: "aten::add" for all overloads,
// "aten::add.Tensor" for one, "aten::where." for the overload without a name.
std::vector<std::string> operator_fact_rows();

// Returns whether LibTorch's autograd node of this name, e.g. "ViewBackward0", returns a view of
// its gradient with as many elements. This is so for the backward of a view that shows all
// elements.
bool is_backward_of_whole_view(const std::string& autograd_node);

}  // namespace aten_recompute
