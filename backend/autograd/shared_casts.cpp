#include "backend/autograd/shared_casts.h"

#include <ATen/SequenceNumber.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "backend/autograd/region_node.h"
#include "common/torch_compat.h"
#include "runtime/autocast.h"
#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

using torch::autograd::Edge;
using torch::autograd::variable_list;

// Adds the gradients of a cast. It has an input in float32 for the first call that reads the cast
// in the block, one in the lower precision for later calls and for calls whose gradient is a sum,
// where the engine adds what it gets, and one for each gradient that follows the sum. Of the nodes
// that have all gradients, the engine runs the one with the highest number first. With the highest
// of all, this one runs as the node behind it does. If it ran after the stages of the first call,
// all gradients would wait for the end of the backward before they are added to the parameters'.
class SumOfCasts : public RegionNode {
 public:
  SumOfCasts(c10::ScalarType type, Edge edge, uint64_t sequence_nr)
      : RegionNode(sequence_nr), type_(type), edge_(edge) {
    add_next_edge(std::move(edge));
  }

  // Returns the number of the input for the gradient of the cast of another call, which may have
  // several to add.
  uint32_t add_call(const at::Tensor& tensor, bool has_several) {
    const bool is_first = num_inputs() == 0;
    if (is_first)
      add_input_metadata(tensor);
    if (is_first && !has_several)
      return kFirst;
    if (!lower_)
      lower_ =
          add_input_metadata(at::empty({1}, tensor.options().dtype(type_)).expand(tensor.sizes()));
    return *lower_;
  }

  // Returns the number of the input for a gradient that follows the sum.
  uint32_t add_follower(const at::Tensor& tensor) {
    followers_.push_back(add_input_metadata(tensor));
    add_next_edge(edge_);
    return followers_.back();
  }

  variable_list apply(variable_list&& gradients) override {
    variable_list results{sum_of_casts(gradients)};
    for (const auto follower : followers_)
      results.push_back(std::move(gradients[follower]));
    return results;
  }

  std::string name() const override { return "SumOfCasts"; }

 private:
  static constexpr uint32_t kFirst = 0;

  at::Tensor sum_of_casts(variable_list& gradients) const {
    auto& first = gradients[kFirst];
    if (!lower_ || !gradients[*lower_].defined())
      return std::move(first);
    // The engine has run the later calls first.
    auto& later = gradients[*lower_];
    return (first.defined() ? later.add(first.to(type_)) : later).to(at::kFloat);
  }

  c10::ScalarType type_;
  Edge edge_;
  std::optional<uint32_t> lower_;
  std::vector<uint32_t> followers_;
};

// A tensor that has been cast. The node lives as long as the graphs of the calls.
struct SharedCast {
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // lets no other tensor have its address
  c10::ScalarType type;
  WeakNodePtr<SumOfCasts> sum;
  uint64_t sequence_nr;  // that eager's node of the cast would have
  // A call has read the tensor without a cast since. If the call that made the cast has no part in
  // the backward, eager adds this call's gradient before those of the cast.
  bool is_read_uncast = false;
};

SharedCast cast_of(const at::Tensor& tensor, c10::ScalarType type,
                   const NodePtr<SumOfCasts>& node = {}) {
  return {c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), type,
          WeakNodePtr<SumOfCasts>(node), at::sequence_number::peek()};
}

// The casts of a thread since autocast's cache was emptied.
struct CastsOfThread {
  uint64_t generation = 0;
  std::unordered_map<const void*, SharedCast> by_tensor;
};

CastsOfThread& casts_of_thread() {
  auto& shared = CallContext::current().shared_casts;
  if (shared == nullptr)
    shared = std::make_shared<CastsOfThread>();
  auto& casts = *std::static_pointer_cast<CastsOfThread>(shared);
  if (const auto generation = generation_of_cast_cache(); casts.generation != generation) {
    casts.by_tensor.clear();
    casts.generation = generation;
  }
  return casts;
}

struct FoundSum {
  NodePtr<SumOfCasts> node;
  bool makes_cast;  // no earlier call of the block has made it
};

FoundSum sum_for(const at::Tensor& tensor, c10::ScalarType type, const Edge& edge,
                 CastsOfThread& casts) {
  const void* key = tensor.unsafeGetTensorImpl();
  const auto found = casts.by_tensor.find(key);
  if (found == casts.by_tensor.end() || found->second.type != type) {
    auto node = make_node<SumOfCasts>(type, edge, UINT64_MAX);
    casts.by_tensor.insert_or_assign(key, cast_of(tensor, type, node));
    return {std::move(node), true};
  }
  auto& cast = found->second;
  auto node = cast.sum.lock();
  if (node == nullptr) {
    node = make_node<SumOfCasts>(type, edge, cast.is_read_uncast ? cast.sequence_nr : UINT64_MAX);
    cast.sum = WeakNodePtr<SumOfCasts>(node);
  }
  return {std::move(node), false};
}

// Returns the casts that this thread knows of, perhaps from a block that has ended; nullptr if
// there are none. Unlike casts_of_thread(), it may be called where autocast or its cache is off.
CastsOfThread* last_casts_of_thread() {
  return static_cast<CastsOfThread*>(CallContext::current().shared_casts.get());
}

// Returns the cast of the tensor among these; nullptr if there is none.
SharedCast* last_cast_of(const at::Tensor& tensor) {
  auto* const casts = last_casts_of_thread();
  if (casts == nullptr)
    return nullptr;
  const auto found = casts->by_tensor.find(tensor.unsafeGetTensorImpl());
  return found == casts->by_tensor.end() ? nullptr : &found->second;
}

bool is_of_cast(const Summand& summand) {
  return summand.kind == SummandKind::kOfCast;
}

}  // namespace

SummandEdges share_casts(const CompiledRegion& compiled_region,
                         const std::vector<c10::IValue>& inputs, const std::vector<Edge>& edges) {
  const auto& summands = compiled_region.summands();
  SummandEdges result;
  for (const auto& summand : summands)
    result.edges.push_back(edges[summand.output]);
  const auto& shared = compiled_region.graphs().shared_casts;
  const auto& without_gradient = compiled_region.graphs().casts_without_gradient;
  if (shared.empty() && without_gradient.empty() && last_casts_of_thread() == nullptr)
    return result;
  for (size_t begin = 0, end = 0; begin < summands.size(); begin = end) {
    const auto gradient = summands[begin].output;
    size_t num_of_cast = 0;
    for (end = begin; end < summands.size() && summands[end].output == gradient; ++end)
      num_of_cast += is_of_cast(summands[end]) ? 1 : 0;
    const auto input = compiled_region.gradient().df_output_vjps[gradient];
    const auto& tensor = inputs[input].toTensor();
    if (num_of_cast == 0) {
      if (auto* const cast = last_cast_of(tensor)) {
        cast->is_read_uncast = true;
        // Where the call that made the cast has no part in the backward, nothing else orders them.
        if (auto node = cast->sum.lock(); node != nullptr)
          result.gates.emplace(end - 1, Edge(std::move(node), 0));
      }
      continue;
    }
    const auto [node, makes_cast] =
        sum_for(tensor, shared.at(input), edges[gradient], casts_of_thread());
    const auto slot = node->add_call(tensor, num_of_cast > 1);
    for (size_t i = begin; i < end; ++i) {
      if (is_of_cast(summands[i]))
        result.edges[i] = Edge(node, slot);
      else if (makes_cast && summands[i].kind == SummandKind::kAfterCast)
        result.edges[i] = Edge(node, node->add_follower(tensor));
    }
    if (!makes_cast && !is_of_cast(summands[end - 1]))
      result.gates.emplace(end - 1, Edge(node, slot));
  }
  for (const auto& [input, type] : without_gradient) {
    const auto& tensor = inputs[input].toTensor();
    casts_of_thread().by_tensor.try_emplace(tensor.unsafeGetTensorImpl(), cast_of(tensor, type));
  }
  return result;
}

void note_casts_without_gradient(const std::vector<c10::IValue>& inputs) {
  const auto autocast = AutocastState::current();
  if (!autocast.is_on() || !autocast.is_cache_on)
    return;
  auto& casts = casts_of_thread();
  for (const auto& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined())
      continue;
    const auto& tensor = input.toTensor();
    const auto device = tensor.device().type();
    if (!autocast.is_on(device) || !tensor.is_leaf() || !tensor.requires_grad() ||
        tensor.is_view() || tensor.scalar_type() != at::kFloat)
      continue;
    casts.by_tensor.try_emplace(tensor.unsafeGetTensorImpl(),
                                cast_of(tensor, autocast.type(device)));
  }
}

torch::autograd::Node& receiver_of(torch::autograd::Node& target) {
  return dynamic_cast<SumOfCasts*>(&target) == nullptr ? target : *target.next_edge(0).function;
}

}  // namespace aten_recompute
