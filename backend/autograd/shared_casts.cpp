#include "backend/autograd/shared_casts.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <memory>
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

// Has an input for the first call of a region that reads the tensor in the block, in float32, and
// one in the lower precision, where the engine adds what it gets: from later calls, and from calls
// whose gradient is a sum (passes/partition/split_sums.h). Runs as soon
// as it has all gradients, as the node behind it does, and not after the stages of the first call,
// which would all wait for their gradients to be added to the parameters'.
class SumOfCasts : public RegionNode {
 public:
  SumOfCasts(c10::ScalarType type, Edge edge) : RegionNode(UINT64_MAX), type_(type) {
    add_next_edge(std::move(edge));
  }

  c10::ScalarType type() const { return type_; }

  // Returns the number of the input for another call, which may have several gradients to add.
  uint32_t add_call(const at::Tensor& tensor, bool has_several) {
    const bool is_first = num_inputs() == 0;
    if (is_first)
      add_input_metadata(tensor);
    if (is_first && !has_several)
      return 0;
    if (num_inputs() == 1)
      add_input_metadata(at::empty({1}, tensor.options().dtype(type_)).expand(tensor.sizes()));
    return 1;
  }

  variable_list apply(variable_list&& gradients) override {
    auto& first = gradients[0];
    if (gradients.size() == 1 || !gradients[1].defined())
      return {std::move(first)};
    // The engine has run the later calls first.
    auto sum = first.defined() ? gradients[1].add(first.to(type_)) : std::move(gradients[1]);
    return {sum.to(at::kFloat)};
  }

  std::string name() const override { return "SumOfCasts"; }

 private:
  c10::ScalarType type_;
};

// The nodes of a thread since autocast's cache was emptied. They live as long as the graphs of the
// calls, and keep the tensors alive whose addresses are the keys.
struct CastsOfThread {
  uint64_t generation = 0;
  std::unordered_map<const void*, WeakNodePtr<SumOfCasts>> nodes;
};

CastsOfThread& casts_of_thread() {
  auto& shared = CallContext::current().shared_casts;
  if (shared == nullptr)
    shared = std::make_shared<CastsOfThread>();
  auto& casts = *std::static_pointer_cast<CastsOfThread>(shared);
  if (const auto generation = generation_of_cast_cache(); casts.generation != generation) {
    casts.nodes.clear();
    casts.generation = generation;
  }
  return casts;
}

NodePtr<SumOfCasts> sum_for(const at::Tensor& tensor, c10::ScalarType type, const Edge& edge,
                            CastsOfThread& casts) {
  const void* key = tensor.unsafeGetTensorImpl();
  if (const auto found = casts.nodes.find(key); found != casts.nodes.end()) {
    if (auto node = found->second.lock(); node != nullptr && node->type() == type)
      return node;
  }
  auto node = make_node<SumOfCasts>(type, edge);
  casts.nodes.insert_or_assign(key, WeakNodePtr<SumOfCasts>(node));
  return node;
}

}  // namespace

std::vector<Edge> share_casts(const CompiledRegion& compiled_region,
                              const std::vector<c10::IValue>& inputs, std::vector<Edge> edges) {
  const auto& shared = compiled_region.graphs().shared_casts;
  if (shared.empty())
    return edges;
  auto& casts = casts_of_thread();
  const auto& gradients = compiled_region.gradient().df_output_vjps;
  const auto& summand_of = compiled_region.summand_of();
  for (size_t k = 0; k < gradients.size(); ++k) {
    const auto found = shared.find(gradients[k]);
    if (found == shared.end())
      continue;
    const auto& tensor = inputs[gradients[k]].toTensor();
    auto node = sum_for(tensor, found->second, edges[k], casts);
    const auto [begin, end] = std::equal_range(summand_of.begin(), summand_of.end(), k);
    const auto slot = node->add_call(tensor, /*has_several=*/end - begin > 1);
    edges[k] = Edge(std::move(node), slot);
  }
  return edges;
}

torch::autograd::Node& receiver_of(torch::autograd::Node& target) {
  return dynamic_cast<SumOfCasts*>(&target) == nullptr ? target : *target.next_edge(0).function;
}

}  // namespace aten_recompute
