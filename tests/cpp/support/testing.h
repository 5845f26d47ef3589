// Helpers of the C++ tests: graphs from and to text, modules, and operators without gradient rules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/joint_graph.h"
#include "ir/save_plan.h"
#include "tests/cpp/support/scoped_env.h"

namespace torch::jit {
struct Block;
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute::test {

// Seeds the generator, enables gradients and unsets RECOMPUTE for one test. Scripted modules then
// run as in eager: LibTorch's optimizing executor, which has its own gradient formulas with other
// rounding, is off.
class TorchTest : public ::testing::Test {
 protected:
  TorchTest();
  ~TorchTest() override;

 private:
  ScopedEnv env_;
  at::Tensor random_state_;
  bool grad_mode_;
  bool optimize_;
};

// ---- graphs ----

std::shared_ptr<torch::jit::Graph> parse(const std::string& ir);

// Returns one line per node of a block:
//   "h = aten::mm(x, w)", "a, b = prim::ListUnpack(c)", or "aten::relu_(h)" without an output.
// Constants are written where they are read and have no line. Values without a name are $0, $1, ...
// in order of appearance. Nested blocks are left out.
std::vector<std::string> listing(const torch::jit::Block& block);
std::vector<std::string> listing(const torch::jit::Graph& graph);
std::vector<std::string> forward_listing(const JointGraph& joint);   // before backward_start
std::vector<std::string> backward_listing(const JointGraph& joint);  // after it

std::vector<std::string> names(c10::ArrayRef<const torch::jit::Value*> values);
std::vector<std::string> names(c10::ArrayRef<torch::jit::Value*> values);

// Returns the value of this name in the graph's outermost block. Throws std::out_of_range if there
// is none.
torch::jit::Value* find_value(const torch::jit::Graph& graph, const std::string& name);
// Returns the nodes of this kind, nested blocks included.
std::vector<torch::jit::Node*> find_nodes(const torch::jit::Graph& graph, const std::string& kind);

std::vector<c10::IValue> run_graph(const std::shared_ptr<torch::jit::Graph>& graph,
                                   std::vector<c10::IValue> inputs);

// How inputs and outputs of a joint graph's text are to be read; JointGraph describes the fields.
struct JointShape {
  size_t num_inputs = 0;
  size_t num_outputs = 0;
  std::vector<size_t> vjp_outputs{};
  std::vector<size_t> gradient_inputs{};
};

// Returns the joint graph of this text, which contains one aten_recompute::backward_start(). Every
// tensor of the forward requires grad.
JointGraph parse_joint(JointShape shape, const std::string& ir);
// Returns a joint graph with an empty backward. All outputs require grad.
JointGraph parse_forward(const std::string& ir);

SavePlan plan_of(const JointGraph& joint, const std::vector<std::string>& saved);
// Returns the names of the saved values, in forward order.
std::vector<std::string> saved_names(const JointGraph& joint, const SavePlan& plan);

// ---- modules ----

// Returns a module of a new class with the attribute `training`. A name that is taken is mangled.
torch::jit::Module make_module(const std::string& class_name);
// Returns a module with forward(x) = linear(x, weight, bias) and random parameters.
torch::jit::Module make_linear(int64_t inputs, int64_t outputs);
// Returns a module that runs one layer, 4 to 4, twice, each time followed by relu, and sums up.
torch::jit::Module make_model();
// Returns a module with the layers `first`, 4 to 8, and `second`, 8 to 3, which have equal
// parameters at every call, and the methods of the source.
torch::jit::Module make_two_layers(const std::string& source,
                                   const torch::jit::ResolverPtr& resolver = nullptr);

std::shared_ptr<torch::jit::Graph> method_graph(const torch::jit::Module& module,
                                                const std::string& method = "forward");

bool bitwise_equal(const at::Tensor& a, const at::Tensor& b);

// ---- operators of aten_recompute_test:: ----
//
//   square(Tensor x) -> Tensor             x * x; has no rule, so it is put on tape
//   pair(Tensor x) -> (Tensor, Tensor)     (x * 2, x * 3); has no rule
//   choose(Tensor x, Tensor y, bool first) -> (Tensor, Tensor)
//                                          (x * 2, y * 3) or (y * 2, x * 3); has no rule
//   one_of_two(Tensor x) -> (Tensor, Tensor)  (x * 2, an undefined tensor); has no rule
//   triple(Tensor x) -> Tensor             x * 3; has no rule, and autograd saves nothing
//   join(Tensor[] xs) -> Tensor            cat(xs); has no rule
//   halves(Tensor x) -> Tensor[]           x.chunk(2); has no rule
//   noise(Tensor x) -> Tensor              x + rand_like(x); tagged random
//   probe(Tensor x) -> Tensor              x + 0, after calling the function of ScopedProbe
//   is_conjugated(Tensor x) -> bool        x.is_conj(), a composite of other operators

// Sets the function that probe() calls, for the lifetime of this object.
class ScopedProbe {
 public:
  explicit ScopedProbe(std::function<void()> probe);
  ~ScopedProbe();
  ScopedProbe(const ScopedProbe&) = delete;
  ScopedProbe& operator=(const ScopedProbe&) = delete;
};

}  // namespace aten_recompute::test
