// Names of this project's own node kinds and attributes.
#pragma once

#include <ATen/core/interned_strings.h>

namespace aten_recompute::symbols {

// A differentiable region: attr::Subgraph holds the forward, kRegion its run-time object.
inline const c10::Symbol kDifferentiableGraph =
    c10::Symbol::fromQualString("aten_recompute::DifferentiableGraph");
inline const c10::Symbol kRegion = c10::Symbol::attr("region");

// On a region: int per input, 1 where the value was read from the module (parameter or buffer).
inline const c10::Symbol kIsAttribute = c10::Symbol::attr("is_attribute");

// Where a joint graph's backward begins; no inputs, no outputs, gone after splice().
inline const c10::Symbol kBackwardStart =
    c10::Symbol::fromQualString("aten_recompute::backward_start");

// An operator without a rule, run under ordinary autograd (runtime/tape.h).
inline const c10::Symbol kTapeForward = c10::Symbol::fromQualString("aten_recompute::tape_forward");
inline const c10::Symbol kTapeBackward =
    c10::Symbol::fromQualString("aten_recompute::tape_backward");
inline const c10::Symbol kRequiresGrad = c10::Symbol::attr("requires_grad");  // int per input

// On nodes of a backward (passes/partition/undefined_gradients.h): int per result of a tape; index
// of an operand.
inline const c10::Symbol kMayBeUndefined = c10::Symbol::attr("may_be_undefined");
inline const c10::Symbol kSkipIfUndefined = c10::Symbol::attr("skip_if_undefined");

// A user's function that writes to what it made itself, as one operator.
inline const c10::Symbol kRuleFunction =
    c10::Symbol::fromQualString("aten_recompute::rule_function");

// `with torch.autocast(...)` in a method (passes/frontend/autocast_blocks.h).
inline const c10::Symbol kEnterAutocast =
    c10::Symbol::fromQualString("aten_recompute::enter_autocast");
inline const c10::Symbol kExitAutocast =
    c10::Symbol::fromQualString("aten_recompute::exit_autocast");

// The random state before a random operator, and that operator run again from it.
inline const c10::Symbol kRandomState = c10::Symbol::fromQualString("aten_recompute::random_state");
inline const c10::Symbol kReplayRandom =
    c10::Symbol::fromQualString("aten_recompute::replay_random");

// Sum of two gradients of one value, in the order in which eager's engine adds them.
inline const c10::Symbol kAccumulate = c10::Symbol::fromQualString("aten_recompute::accumulate");
// On such a sum: of a region input's gradients; its index.
inline const c10::Symbol kOfInput = c10::Symbol::attr("of_input");
inline const c10::Symbol kAccumulateList =
    c10::Symbol::fromQualString("aten_recompute::accumulate_list");
inline const c10::Symbol kOptionalList =
    c10::Symbol::fromQualString("aten_recompute::optional_list");
inline const c10::Symbol kListGradient =
    c10::Symbol::fromQualString("aten_recompute::list_gradient");

// A gradient summed to the sizes, and brought to the dtype, of what was broadcast.
inline const c10::Symbol kReduceGrad = c10::Symbol::fromQualString("aten_recompute::reduce_grad");

inline const c10::Symbol kMarkLayer = c10::Symbol::fromQualString("aten_recompute::mark_layer");

// Identities with which a program says what a plan is to do with a value (passes/strategy/tags.h).
inline const c10::Symbol kMustSave = c10::Symbol::fromQualString("aten_recompute::must_save");
inline const c10::Symbol kMustRecompute =
    c10::Symbol::fromQualString("aten_recompute::must_recompute");
inline const c10::Symbol kPreferSave = c10::Symbol::fromQualString("aten_recompute::prefer_save");
inline const c10::Symbol kPreferRecompute =
    c10::Symbol::fromQualString("aten_recompute::prefer_recompute");

// On nodes that add_alternatives() made (passes/autodiff/alternatives.h).
inline const c10::Symbol kAlternativeTo = c10::Symbol::attr("alternative_to");
inline const c10::Symbol kGives = c10::Symbol::attr("gives");
inline const c10::Symbol kOptional = c10::Symbol::attr("optional");

// Layer number of a node, set by assign_layers(); absent: before every layer.
inline const c10::Symbol kLayer = c10::Symbol::attr("layer");
// A later node of the method writes to what the node reads
// (passes/frontend/mark_clobbered_reads.h).
inline const c10::Symbol kReadsWritten = c10::Symbol::attr("reads_written");
// On forward nodes whose sizes data decide: place of the first in Profile::data_sizes.
inline const c10::Symbol kDataSizes = c10::Symbol::attr("data_sizes");
// Path of the module whose method the node was inlined from: "blocks.3.attention".
inline const c10::Symbol kModulePath = c10::Symbol::attr("module_path");
// On nodes of a backward: the forward operator whose gradient they compute.
inline const c10::Symbol kBackwardOf = c10::Symbol::attr("backward_of");
// On nodes of a backward that splice() copied from the forward.
inline const c10::Symbol kRecomputed = c10::Symbol::attr("recomputed");

}  // namespace aten_recompute::symbols
