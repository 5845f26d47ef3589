// Names of this project's own node kinds and attributes.
#pragma once

#include <ATen/core/interned_strings.h>

namespace aten_recompute::symbols {

// A differentiable region. attr::Subgraph holds its forward, kRegion its run-time object.
inline const c10::Symbol kDifferentiableGraph =
    c10::Symbol::fromQualString("aten_recompute::DifferentiableGraph");
inline const c10::Symbol kRegion = c10::Symbol::attr("region");

// Attribute of a region: one int per input, 1 if the value was read from the module (a parameter or
// buffer).
inline const c10::Symbol kIsAttribute = c10::Symbol::attr("is_attribute");

// Attribute of a node of a recorded path that stands before all regions.
inline const c10::Symbol kBeforeRegions = c10::Symbol::attr("before_regions");

// Marks where the backward of a joint graph begins. It has no inputs and outputs; splice() removes
// it.
inline const c10::Symbol kBackwardStart =
    c10::Symbol::fromQualString("aten_recompute::backward_start");

// Raises where a call leaves the path that it was compiled for (runtime/path_check.h).
inline const c10::Symbol kCheckPath = c10::Symbol::fromQualString("aten_recompute::check_path");
// Attribute of such a check: the number of the `if` that it decides
// (passes/frontend/path/record_path.h).
inline const c10::Symbol kDecides = c10::Symbol::attr("decides");

// An `if` whose answer data decide, as one operator. attr::Subgraph holds it (runtime/branch.h).
inline const c10::Symbol kBranch = c10::Symbol::fromQualString("aten_recompute::branch");

// An operator without a rule, which runs under ordinary autograd (runtime/tape.h).
inline const c10::Symbol kTapeForward = c10::Symbol::fromQualString("aten_recompute::tape_forward");
inline const c10::Symbol kTapeBackward =
    c10::Symbol::fromQualString("aten_recompute::tape_backward");
inline const c10::Symbol kRequiresGrad = c10::Symbol::attr("requires_grad");  // one int per input

// Attributes of backward nodes (passes/partition/undefined_gradients.h). kMayBeUndefined: one int
// per result of a tape. kSkipIfUndefined: index of an operand.
inline const c10::Symbol kMayBeUndefined = c10::Symbol::attr("may_be_undefined");
inline const c10::Symbol kSkipIfUndefined = c10::Symbol::attr("skip_if_undefined");

// Gradients that a method asks for (runtime/inner_gradient.h).
inline const c10::Symbol kGradient = c10::Symbol::fromQualString("aten_recompute::gradient");
inline const c10::Symbol kRequireGrad = c10::Symbol::fromQualString("aten_recompute::require_grad");
inline const c10::Symbol kOperatorGradient =
    c10::Symbol::fromQualString("aten_recompute::operator_gradient");
inline const c10::Symbol kIsTarget = c10::Symbol::attr("is_target");        // one int per input
inline const c10::Symbol kHasGradient = c10::Symbol::attr("has_gradient");  // one int per output
// On kGradient: no tensor that the path has read or made until then holds complex numbers. A region
// removes the attribute for a call with complex inputs.
inline const c10::Symbol kIsReal = c10::Symbol::attr("is_real");
// On kGradient: how many operands the results depend on. Behind these are targets that they do not
// depend on.
inline const c10::Symbol kNumDependencies = c10::Symbol::attr("num_dependencies");
// Attributes that expand_gradients() sets. kWithoutGraph: on a node that autograd.grad() ran
// without create_graph, so that no gradient passes through it. kFreed: on a node whose part of the
// graph such a call has freed.
inline const c10::Symbol kWithoutGraph = c10::Symbol::attr("without_graph");
inline const c10::Symbol kFreed = c10::Symbol::attr("freed");
// On a node that puts what was written to a view into the tensor. Eager PyTorch's node for the
// write can run only once unless the graph is retained, although it saves no tensor.
inline const c10::Symbol kOfWrite = c10::Symbol::attr("of_write");

// On an operator whose parts convert its first argument to the type that they compute in: the
// argument has that type already (passes/region/noop_elimination.h).
inline const c10::Symbol kHasComputedType = c10::Symbol::attr("has_computed_type");

// A function of a user's rule that writes to tensors that it made itself, as one operator.
inline const c10::Symbol kRuleFunction =
    c10::Symbol::fromQualString("aten_recompute::rule_function");

// `with torch.autocast(...)` in a method (passes/frontend/rewrites/autocast_blocks.h).
inline const c10::Symbol kEnterAutocast =
    c10::Symbol::fromQualString("aten_recompute::enter_autocast");
inline const c10::Symbol kExitAutocast =
    c10::Symbol::fromQualString("aten_recompute::exit_autocast");

// Records the random state before a random operator; runs that operator again from the recorded
// state.
inline const c10::Symbol kRandomState = c10::Symbol::fromQualString("aten_recompute::random_state");
inline const c10::Symbol kReplayRandom =
    c10::Symbol::fromQualString("aten_recompute::replay_random");

// A tensor that has the layout of another one, but not its memory (rules/kernels/stand_in.h).
inline const c10::Symbol kLayout = c10::Symbol::fromQualString("aten_recompute::layout");
inline const c10::Symbol kStandIn = c10::Symbol::fromQualString("aten_recompute::stand_in");

// The sum of two gradients of one value, in the order in which eager's engine adds them.
inline const c10::Symbol kAccumulate = c10::Symbol::fromQualString("aten_recompute::accumulate");
// On a sum of gradients of a region input: the index of that input.
inline const c10::Symbol kOfInput = c10::Symbol::attr("of_input");
inline const c10::Symbol kAccumulateList =
    c10::Symbol::fromQualString("aten_recompute::accumulate_list");
inline const c10::Symbol kOptionalList =
    c10::Symbol::fromQualString("aten_recompute::optional_list");
inline const c10::Symbol kListGradient =
    c10::Symbol::fromQualString("aten_recompute::list_gradient");

// Sums a gradient to the sizes of an operand that was broadcast, and converts it to the operand's
// dtype.
inline const c10::Symbol kReduceGrad = c10::Symbol::fromQualString("aten_recompute::reduce_grad");

// Give an image another layout (passes/region/channels_last.h).
inline const c10::Symbol kChannelsLast =
    c10::Symbol::fromQualString("aten_recompute::channels_last");
inline const c10::Symbol kChannelsFirst =
    c10::Symbol::fromQualString("aten_recompute::channels_first");

// A batch norm and the activation that reads it (passes/region/fuse_batch_norm.h).
inline const c10::Symbol kClampedBatchNorm =
    c10::Symbol::fromQualString("aten_recompute::clamped_batch_norm");

// A batch norm in evaluation that runs again (rules/kernels/batch_norm.cpp).
inline const c10::Symbol kBatchNormAsSeen =
    c10::Symbol::fromQualString("aten_recompute::batch_norm_as_seen");

// A copy of what the caller may change before the backward (rules/normalization.cpp).
inline const c10::Symbol kSnapshot = c10::Symbol::fromQualString("aten_recompute::snapshot");

// A stretch of operators that runs slice by slice (runtime/sliced.h). attr::Subgraph holds it.
inline const c10::Symbol kSliced = c10::Symbol::fromQualString("aten_recompute::sliced");
inline const c10::Symbol kSlices = c10::Symbol::attr("slices");             // their number
inline const c10::Symbol kOperandRows = c10::Symbol::attr("operand_rows");  // one int per operand
inline const c10::Symbol kResultRows = c10::Symbol::attr("result_rows");    // one int per result

// Pairs of an operand and a dimension of it that has to be 1.
inline const c10::Symbol kBroadcasts = c10::Symbol::attr("broadcasts");

// The number of a node of the forward, on the node and on those of its gradients
// (passes/region/forward_tensors.h).
inline const c10::Symbol kNumber = c10::Symbol::attr("number_in_forward");
inline const c10::Symbol kOfNumber = c10::Symbol::attr("gradient_of_number");

inline const c10::Symbol kMarkLayer = c10::Symbol::fromQualString("aten_recompute::mark_layer");

// Identities with which a program tells a plan how to treat a value (passes/strategy/tags.h).
inline const c10::Symbol kMustSave = c10::Symbol::fromQualString("aten_recompute::must_save");
inline const c10::Symbol kMustRecompute =
    c10::Symbol::fromQualString("aten_recompute::must_recompute");
inline const c10::Symbol kPreferSave = c10::Symbol::fromQualString("aten_recompute::prefer_save");
inline const c10::Symbol kPreferRecompute =
    c10::Symbol::fromQualString("aten_recompute::prefer_recompute");

// Attributes of nodes that add_alternatives() made (passes/autodiff/alternatives.h).
inline const c10::Symbol kAlternativeTo = c10::Symbol::attr("alternative_to");
inline const c10::Symbol kGives = c10::Symbol::attr("gives");
inline const c10::Symbol kOptional = c10::Symbol::attr("optional");

// The layer number of a node, set by assign_layers(). Nodes without it come before every layer.
inline const c10::Symbol kLayer = c10::Symbol::attr("layer");
// On nodes that read memory to which a later node of the method writes
// (passes/frontend/regions/mark_clobbered_reads.h).
inline const c10::Symbol kReadsWritten = c10::Symbol::attr("reads_written");
// On forward nodes whose result sizes depend on data: index of the first one in
// Profile::data_sizes.
inline const c10::Symbol kDataSizes = c10::Symbol::attr("data_sizes");
// On nodes that keep another one from being removed (ir/dead_code.h).
inline const c10::Symbol kPin = c10::Symbol::attr("pin");
// Path of the module whose method the node was inlined from, e.g. "blocks.3.attention".
inline const c10::Symbol kModulePath = c10::Symbol::attr("module_path");
// On backward nodes: the forward operator whose gradient they compute.
inline const c10::Symbol kBackwardOf = c10::Symbol::attr("backward_of");
// On casts of region inputs that autocast makes once in a block, and on the nodes of their
// backward.
inline const c10::Symbol kCachedCast = c10::Symbol::attr("cached_cast");
// On backward nodes that splice() copied from the forward.
inline const c10::Symbol kRecomputed = c10::Symbol::attr("recomputed");

}  // namespace aten_recompute::symbols
