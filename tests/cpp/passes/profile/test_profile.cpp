#include "passes/profile/profile.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::find_value;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class ProfileTest : public test::TorchTest {};

std::vector<int32_t> storages(const JointGraph& joint, const Profile& profile,
                              const std::string& name) {
  return profile.storages.at(find_value(*joint.graph, name)->unique());
}

// Returns the bytes of a value that lies in one storage.
int64_t bytes(const JointGraph& joint, const Profile& profile, const std::string& name) {
  const auto of_value = storages(joint, profile, name);
  EXPECT_THAT(of_value, SizeIs(1)) << name;
  return profile.storage_bytes.at(of_value.at(0));
}

bool is_callers(const JointGraph& joint, const Profile& profile, const std::string& name) {
  return profile.storage_is_callers.at(storages(joint, profile, name).at(0));
}

JointGraph region(const std::string& ir) {
  const auto graph = test::parse(ir);
  std::vector<bool> requires_grad;
  for (auto* input : graph->inputs())
    requires_grad.push_back(input->type()->isSubtypeOf(*c10::TensorType::get()));
  return differentiate(graph, requires_grad, std::vector<bool>(graph->outputs().size(), true));
}

constexpr const char* kLayer = R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::tanh(%h)
  return (%y)
)";

TEST_F(ProfileTest, BytesAreThoseOfTheTensors) {
  const auto joint = region(kLayer);
  const auto x = at::randn({4, 8}), w = at::randn({8, 16}).to(at::kFloat);
  const auto costs = profile(joint, {x, w}, CostModel::kFlops);
  EXPECT_EQ(bytes(joint, costs, "h"), 4 * 16 * 4);
  EXPECT_EQ(bytes(joint, costs, "y"), 4 * 16 * 4);
  EXPECT_NE(storages(joint, costs, "h"), storages(joint, costs, "y"));
  // The caller holds x and w; the region allocates the rest.
  EXPECT_TRUE(is_callers(joint, costs, "x"));
  EXPECT_TRUE(is_callers(joint, costs, "w"));
  EXPECT_FALSE(is_callers(joint, costs, "h"));
  // A gradient is as large as its value.
  auto bytes_of = [&](const torch::jit::Value* value) {
    return costs.storage_bytes.at(costs.storages.at(value->unique()).at(0));
  };
  EXPECT_EQ(bytes_of(joint.graph->inputs()[2]), 4 * 16 * 4);
  ASSERT_THAT(joint.graph->outputs(), SizeIs(3));
  EXPECT_EQ(bytes_of(joint.graph->outputs()[1]), 4 * 8 * 4);
  EXPECT_EQ(bytes_of(joint.graph->outputs()[2]), 8 * 16 * 4);
}

TEST_F(ProfileTest, BytesFollowTheDtype) {
  const auto joint = region(kLayer);
  const auto costs = profile(
      joint, {at::randn({4, 8}, at::kDouble), at::randn({8, 16}, at::kDouble)}, CostModel::kFlops);
  EXPECT_EQ(bytes(joint, costs, "h"), 4 * 16 * 8);
}

TEST_F(ProfileTest, ViewsShareTheStorageOfTheirBase) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %two : int = prim::Constant[value=2]()
  %h : Tensor = aten::sin(%x)
  %t : Tensor = aten::t(%h)
  %row : Tensor = aten::select(%t, %zero, %zero)
  %halves : Tensor[] = aten::chunk(%h, %two, %zero)
  %first : Tensor, %second : Tensor = prim::ListUnpack(%halves)
  %of_x : Tensor = aten::t(%x)
  %y : Tensor = aten::exp(%t)
  return (%y)
)");
  const auto costs = profile(joint, {at::randn({4, 6})}, CostModel::kFlops);
  const auto h = storages(joint, costs, "h");
  for (const char* view : {"t", "row", "halves", "first", "second"})
    EXPECT_EQ(storages(joint, costs, view), h) << view;
  EXPECT_EQ(bytes(joint, costs, "row"), 4 * 6 * 4);  // a view keeps all of h
  EXPECT_EQ(storages(joint, costs, "of_x"), storages(joint, costs, "x"));
  EXPECT_TRUE(is_callers(joint, costs, "of_x"));
  EXPECT_NE(storages(joint, costs, "y"), h);
}

// reshape() of a contiguous tensor is a view, and of a transposed one a copy.
TEST_F(ProfileTest, AReshapeHasAStorageOfItsOwnOnlyIfItCopies) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %all : int = prim::Constant[value=-1]()
  %flat : int[] = prim::ListConstruct(%all)
  %h : Tensor = aten::sin(%x)
  %t : Tensor = aten::t(%h)
  %view : Tensor = aten::reshape(%h, %flat)
  %copy : Tensor = aten::reshape(%t, %flat)
  %y : Tensor = aten::add(%view, %copy, %all)
  return (%y)
)");
  const auto costs = profile(joint, {at::randn({4, 6})}, CostModel::kFlops);
  EXPECT_EQ(storages(joint, costs, "view"), storages(joint, costs, "h"));
  EXPECT_NE(storages(joint, costs, "copy"), storages(joint, costs, "h"));
  EXPECT_EQ(bytes(joint, costs, "copy"), 4 * 6 * 4);
  EXPECT_FALSE(is_callers(joint, costs, "copy"));
}

TEST_F(ProfileTest, AListHasTheStoragesOfItsElements) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %a : Tensor = aten::sin(%x)
  %b : Tensor = aten::cos(%x)
  %list : Tensor[] = prim::ListConstruct(%a, %b, %a)
  %y : Tensor = aten::cat(%list, %zero)
  return (%y)
)");
  const auto costs = profile(joint, {at::randn({4})}, CostModel::kFlops);
  EXPECT_THAT(storages(joint, costs, "list"),
              ElementsAre(storages(joint, costs, "a").at(0), storages(joint, costs, "b").at(0)));
  EXPECT_EQ(bytes(joint, costs, "y"), 3 * 4 * 4);
}

// Four calls on equal sizes are one class, which runs once, or a few times to be timed. The fifth
// call is larger.
TEST_F(ProfileTest, EqualNodesAreRunOnce) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %large : Tensor):
  %a : Tensor = aten_recompute_test::probe(%x)
  %b : Tensor = aten_recompute_test::probe(%a)
  %c : Tensor = aten_recompute_test::probe(%b)
  %d : Tensor = aten_recompute_test::probe(%x)
  %e : Tensor = aten_recompute_test::probe(%large)
  return (%c, %d, %e)
)");
  int runs = 0;
  const test::ScopedProbe probe([&] { ++runs; });
  const std::vector<c10::IValue> inputs{at::randn({4}), at::randn({5})};
  const auto costs = profile(joint, inputs, CostModel::kFlops);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(costs.num_classes, 2U);
  // Each call has its own memory nevertheless.
  EXPECT_NE(storages(joint, costs, "a"), storages(joint, costs, "b"));
  const auto measured = profile(joint, inputs, CostModel::kMeasured);
  auto seconds = [&](const char* name) {
    return measured.nodes.at(find_value(*joint.graph, name)->node()).seconds;
  };
  EXPECT_EQ(seconds("a"), seconds("b"));
  EXPECT_EQ(seconds("a"), seconds("d"));
  EXPECT_GT(seconds("a"), 0.0);
}

// Classes differ in sizes, dtypes, strides and arguments.
TEST_F(ProfileTest, DifferentNodesAreDifferentClasses) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %d : Tensor):
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %t : Tensor = aten::t(%x)
  %a : Tensor = aten::add(%x, %x, %one)
  %b : Tensor = aten::add(%x, %x, %two)
  %c : Tensor = aten::add(%t, %t, %one)
  %e : Tensor = aten::add(%d, %d, %one)
  %f : Tensor = aten::add(%x, %a, %one)
  %g : Tensor = aten::add(%a, %x, %one)
  return (%a, %b, %c, %e, %f, %g)
)");
  const auto costs =
      profile(joint, {at::randn({4, 4}), at::randn({4, 4}, at::kDouble)}, CostModel::kFlops);
  // The classes are a, b, c, e, and one of f and g, which read two storages where a reads one.
  EXPECT_EQ(costs.num_classes, 5U);
}

// Gradients of a concatenation are slices of one tensor. 16 floats are a cache line.
TEST_F(ProfileTest, SlicesOfOneTensorAreOneClass) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %four : int = prim::Constant[value=4]()
  %16 : int = prim::Constant[value=16]()
  %32 : int = prim::Constant[value=32]()
  %a : Tensor = aten::narrow(%x, %zero, %zero, %16)
  %b : Tensor = aten::narrow(%x, %zero, %16, %16)
  %c : Tensor = aten::narrow(%x, %zero, %32, %16)
  %d : Tensor = aten::narrow(%x, %zero, %four, %16)
  %sin_a : Tensor = aten::sin(%a)
  %sin_b : Tensor = aten::sin(%b)
  %sin_d : Tensor = aten::sin(%d)
  %ab : Tensor = aten::add(%a, %b, %one)
  %bc : Tensor = aten::add(%b, %c, %one)
  %ac : Tensor = aten::add(%a, %c, %one)
  return (%sin_a, %sin_b, %sin_d, %ab, %bc, %ac)
)");
  const auto costs = profile(joint, {at::randn({64})}, CostModel::kFlops);
  // sin(a) and sin(b); sin(d), where d begins inside a cache line; a + b and b + c; a + c.
  EXPECT_EQ(costs.num_classes, 4U);
}

TEST_F(ProfileTest, AViewOfASliceHasTheAlignmentOfTheSlice) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %16 : int = prim::Constant[value=16]()
  %a : Tensor = aten::narrow(%x, %zero, %zero, %16)
  %b : Tensor = aten::narrow(%x, %zero, %16, %16)
  %same_a : Tensor = aten::contiguous(%a, %zero)
  %same_b : Tensor = aten::contiguous(%b, %zero)
  %aa : Tensor = aten::add(%a, %same_a, %one)
  %bb : Tensor = aten::add(%b, %same_b, %one)
  return (%aa, %bb)
)");
  const auto costs = profile(joint, {at::randn({32})}, CostModel::kFlops);
  EXPECT_EQ(storages(joint, costs, "same_b"), storages(joint, costs, "x"));
  // contiguous(a), contiguous(b), and the sums, whose operands share memory.
  EXPECT_EQ(costs.num_classes, 3U);
}

TEST_F(ProfileTest, WithTheFlopModelSecondsAreTheSameEachTime) {
  const auto joint = region(kLayer);
  const std::vector<c10::IValue> inputs{at::randn({4, 8}), at::randn({8, 16})};
  const auto first = profile(joint, inputs, CostModel::kFlops);
  const auto second = profile(joint, inputs, CostModel::kFlops);
  ASSERT_EQ(first.nodes.size(), second.nodes.size());
  for (const auto& [node, cost] : first.nodes)
    EXPECT_EQ(cost.seconds, second.nodes.at(node).seconds);
  // mm does 2 * 4 * 16 * 8 operations and moves 4 x 8, 8 x 16 and 4 x 16 floats.
  const auto& mm = first.nodes.at(find_value(*joint.graph, "h")->node());
  EXPECT_DOUBLE_EQ(mm.flops, 1024.0);
  EXPECT_DOUBLE_EQ(mm.seconds, 1024.0 / 100e9 + 4.0 * (32 + 128 + 64) / 10e9 + 2e-6);
}

// No machine has memory for these tensors of 4 TiB each.
TEST_F(ProfileTest, MetaInputsNeedNoMemory) {
  const auto joint = region(kLayer);
  const auto meta = at::TensorOptions().device(at::kMeta);
  const int64_t n = 1 << 20;
  const auto costs =
      profile(joint, {at::empty({n, n}, meta), at::empty({n, n}, meta)}, CostModel::kMeasured);
  EXPECT_EQ(bytes(joint, costs, "h"), n * n * 4);
  EXPECT_TRUE(is_callers(joint, costs, "x"));
  EXPECT_FALSE(is_callers(joint, costs, "h"));
  // 2 n^3 operations at 100 GFLOP/s, and not the time that the meta operator takes.
  EXPECT_GT(costs.nodes.at(find_value(*joint.graph, "h")->node()).seconds, 1e6);
}

TEST_F(ProfileTest, MetaInputsGiveTheSameProfileAsRealOnes) {
  const auto joint = region(kLayer);
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto real = profile(joint, {at::randn({4, 8}), at::randn({8, 16})}, CostModel::kFlops);
  const auto described =
      profile(joint, {at::empty({4, 8}, meta), at::empty({8, 16}, meta)}, CostModel::kMeasured);
  EXPECT_EQ(described.storage_bytes, real.storage_bytes);
  EXPECT_EQ(described.storage_is_callers, real.storage_is_callers);
  EXPECT_EQ(described.storages, real.storages);
  for (const auto& [node, cost] : real.nodes)
    EXPECT_EQ(described.nodes.at(node).seconds, cost.seconds);
}

// noise() is x + rand_like(x), so the random tensor is alive beside the result.
TEST_F(ProfileTest, WorkspaceIsMemoryBeyondTheResults) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::noise(%x)
  %b : Tensor = aten::sin(%x)
  return (%a, %b)
)");
  const auto costs = profile(joint, {at::randn({1000})}, CostModel::kFlops);
  auto workspace = [&](const char* name) {
    return costs.nodes.at(find_value(*joint.graph, name)->node()).workspace_bytes;
  };
  EXPECT_EQ(workspace("a"), 4000);
  EXPECT_EQ(workspace("b"), 0);
}

TEST_F(ProfileTest, ARandomOperatorNeedsItsStateToRunAgain) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::noise(%x)
  %b : Tensor = aten::sin(%x)
  return (%a, %b)
)");
  const auto costs = profile(joint, {at::randn({4})}, CostModel::kFlops);
  auto replay_bytes = [&](const char* name) {
    return costs.nodes.at(find_value(*joint.graph, name)->node()).replay_bytes;
  };
  EXPECT_EQ(replay_bytes("a"),
            static_cast<int64_t>(at::detail::getDefaultCPUGenerator().get_state().nbytes()));
  EXPECT_EQ(replay_bytes("b"), 0);
}

// x * x saves x for its gradient, so the tape keeps h, and nothing else.
TEST_F(ProfileTest, ATapeHoldsItsOperands) {
  const auto joint = region(R"(
graph(%x : Tensor):
  %h : Tensor = aten::sin(%x)
  %y : Tensor = aten_recompute_test::square(%h)
  return (%y)
)");
  const auto costs = profile(joint, {at::randn({100})}, CostModel::kMeasured);
  const auto tapes = find_nodes(*joint.graph, "aten_recompute::tape_forward");
  ASSERT_THAT(tapes, SizeIs(1));
  const auto& tape = costs.storages.at(tapes[0]->outputs().back()->unique());
  EXPECT_THAT(tape, ::testing::Contains(storages(joint, costs, "h").at(0)));
  int64_t sum = 0;
  for (auto storage : tape)
    sum += costs.storage_bytes.at(storage);
  EXPECT_EQ(sum, 400);
  // The backward of the tape was run, on a separate tape.
  const auto backward = find_nodes(*joint.graph, "aten_recompute::tape_backward");
  ASSERT_THAT(backward, SizeIs(1));
  EXPECT_GT(costs.nodes.at(backward[0]).seconds, 0.0);
  EXPECT_EQ(bytes(joint, costs, joint.graph->outputs()[1]->debugName()), 400);
}

TEST_F(ProfileTest, NothingIsMutated) {
  const auto joint = region(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %count : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %p : float = prim::Constant[value=0.5]()
  %updated : Tensor = aten::add_(%count, %one, %one)
  %n : Tensor = aten::batch_norm(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  %d : Tensor = aten::dropout(%n, %p, %true)
  %y : Tensor = aten_recompute_test::noise(%d)
  return (%y)
)");
  const auto x = at::randn({4, 3}), mean = at::randn({3}), var = at::rand({3});
  const auto count = at::zeros({});
  std::vector<at::Tensor> before;
  for (const auto& tensor : {x, mean, var, count})
    before.push_back(tensor.clone());
  const auto state = at::detail::getDefaultCPUGenerator().get_state();
  for (const auto cost_model : {CostModel::kFlops, CostModel::kMeasured})
    profile(joint, {x, mean, var, count}, cost_model);
  const std::vector<at::Tensor> after{x, mean, var, count};
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(test::bitwise_equal(after[i], before[i])) << i;
  EXPECT_TRUE(test::bitwise_equal(at::detail::getDefaultCPUGenerator().get_state(), state));
}

// This operator has no rule, so it runs on a tape, and once more for the tape's backward.
TEST_F(ProfileTest, NothingOnATapeIsMutatedEither) {
  const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor, %m : Tensor, %s : Tensor = aten::native_batch_norm(%x, %none, %none, %mean, %var, %true, %momentum, %eps)
  return (%y)
)"),
                                   {true, false, false}, {true});
  ASSERT_THAT(find_nodes(*joint.graph, "aten_recompute::tape_backward"), SizeIs(1));
  const auto mean = at::randn({3}), var = at::rand({3});
  const auto mean_before = mean.clone(), var_before = var.clone();
  profile(joint, {at::randn({2, 3, 5}), mean, var}, CostModel::kMeasured);
  EXPECT_TRUE(test::bitwise_equal(mean, mean_before));
  EXPECT_TRUE(test::bitwise_equal(var, var_before));
}

TEST_F(ProfileTest, TheRunningStatisticsOfAnInstanceNormAreNotMutated) {
  const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor = aten::instance_norm(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  return (%y)
)"),
                                   {true, false, false}, {true});
  ASSERT_THAT(find_nodes(*joint.graph, "aten_recompute::instance_norm"), SizeIs(1));
  const auto mean = at::randn({3}), var = at::rand({3});
  const auto mean_before = mean.clone(), var_before = var.clone();
  profile(joint, {at::randn({2, 3, 5}), mean, var}, CostModel::kMeasured);
  EXPECT_TRUE(test::bitwise_equal(mean, mean_before));
  EXPECT_TRUE(test::bitwise_equal(var, var_before));
}

TEST_F(ProfileTest, ATensorThatCannotBeDescribedIsNamed) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %y : Tensor = aten::neg(%x)
  return (%y)
)");
  try {
    profile(joint, {at::eye(3).to_sparse()}, CostModel::kFlops);
    FAIL() << "described a sparse tensor";
  } catch (const NotProfiled& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("layout Sparse"));
    EXPECT_FALSE(error.inputs_are_to_blame());
  }
}

}  // namespace
}  // namespace aten_recompute
