#include "backend/planning/region_dataflow.h"
#include "common/parse_options.h"

#include <ATen/Functions.h>

#include "backend/planning/method_call.h"
#include "backend/region/region.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// A call of a method with several regions, each y = tanh(x) @ w, where w is an attribute. The tests
// run the operators between regions. Tensors are 3 by 3.
class RegionDataflow : public test::TorchTest {
 protected:
  RegionDataflow()
      : options_(parse_options(
            R"({"strategy": "budget", "memory_budget": 1.0, "cost_model": "flops"})")),
        call_(std::make_shared<MethodPlans>("forward", options_), {x_}) {}

  at::Tensor run_region(const at::Tensor& x, const at::Tensor& w) {
    regions_.push_back(c10::make_intrusive<Region>(test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::tanh(%x)
  %y : Tensor = aten::mm(%h, %w)
  return (%y)
)"),
                                                   std::vector<bool>{false, true}, options_,
                                                   /*is_one_of_several=*/true));
    torch::jit::Stack stack{x, w};
    regions_.back()->run(stack);
    return stack.back().toTensor();
  }

  static at::Tensor parameter() { return at::randn({3, 3}).requires_grad_(); }

  // What was recorded, if the method returns `result`.
  std::vector<RegionRun> runs(const c10::IValue& result, bool accumulate = false) {
    auto options = options_;
    options.accumulate = accumulate;
    return call_.dataflow()->runs(result, options);
  }

  // Returns "0: mm_0_y" for a value of run 0, and "0: made by aten::mul" for one of its backward.
  static std::string named(const std::vector<RegionRun>& runs, RegionRun::OtherValue value) {
    if (value.run < 0)
      return "none";
    const auto& problem = *runs[value.run].problem;
    const auto producer = problem.producer[value.value];
    const auto name = producer < 0 || problem.in_forward(producer)
                          ? problem.value_names[value.value]
                          : "made by " + problem.node_names[producer];
    return std::to_string(value.run) + ": " + name;
  }

  static std::vector<std::string> names_of(const std::vector<RegionRun>& runs, int32_t run,
                                           const std::vector<int32_t>& values) {
    std::vector<std::string> names;
    for (const auto value : values)
      names.push_back(named(runs, {run, value}));
    return names;
  }

  const at::Tensor x_ = at::randn({3, 3});

 private:
  Options options_;
  MethodCall call_;
  std::vector<c10::intrusive_ptr<Region>> regions_;
};

TEST_F(RegionDataflow, AnInputThatIsAnotherRegionsOutputIsLinkedToIt) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y, parameter());
  const auto linked = runs(z);
  ASSERT_THAT(linked, SizeIs(2));
  EXPECT_THAT(linked[0].given, IsEmpty());
  ASSERT_THAT(linked[1].given, SizeIs(1));
  EXPECT_EQ(named(linked, {1, linked[1].given[0].value}), "1: x");
  EXPECT_EQ(named(linked, linked[1].given[0].from), "0: mm_0_y");
  EXPECT_EQ(linked[1].given[0].bytes, 36);
}

TEST_F(RegionDataflow, AGradientComesFromTheRegionThatReadsTheOutput) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y, parameter());
  const auto linked = runs(z);
  ASSERT_THAT(linked[0].incoming, SizeIs(1));
  EXPECT_FALSE(linked[0].incoming[0].from_loss);
  EXPECT_TRUE(linked[0].incoming[0].passthrough);
  ASSERT_THAT(linked[0].incoming[0].gradients, SizeIs(1));
  EXPECT_EQ(linked[0].incoming[0].gradients[0].run, 1);
  ASSERT_THAT(linked[1].incoming, SizeIs(1));
  EXPECT_TRUE(linked[1].incoming[0].from_loss);
  EXPECT_THAT(linked[1].incoming[0].gradients, IsEmpty());
}

TEST_F(RegionDataflow, AnOutputThatIsReturnedGetsAGradientFromTheLossToo) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y, parameter());
  const auto linked = runs(c10::ivalue::Tuple::create({y, z}));
  EXPECT_TRUE(linked[0].incoming[0].from_loss);
  EXPECT_THAT(linked[0].incoming[0].gradients, SizeIs(1));
}

TEST_F(RegionDataflow, AViewBetweenRegionsIsTheSameMemory) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y.t(), parameter());
  const auto linked = runs(z);
  ASSERT_THAT(linked[1].given, SizeIs(1));
  EXPECT_EQ(named(linked, linked[1].given[0].from), "0: mm_0_y");
  EXPECT_TRUE(linked[0].incoming[0].passthrough);
}

TEST_F(RegionDataflow, AnOperatorBetweenRegionsMakesNewMemoryAndANewGradient) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y * 2, parameter());
  const auto linked = runs(z);
  ASSERT_THAT(linked[1].given, SizeIs(1));
  EXPECT_EQ(named(linked, linked[1].given[0].from), "none");
  ASSERT_THAT(linked[0].incoming[0].gradients, SizeIs(1));
  EXPECT_FALSE(linked[0].incoming[0].passthrough);
}

TEST_F(RegionDataflow, MemoryMadeBetweenRegionsIsLinkedToItsFirstReader) {
  const auto between = x_ * 2;
  const auto y = run_region(between, parameter());
  const auto z = run_region(between, parameter());
  const auto linked = runs(y + z);
  ASSERT_THAT(linked[0].given, SizeIs(1));
  EXPECT_EQ(named(linked, linked[0].given[0].from), "none");
  ASSERT_THAT(linked[1].given, SizeIs(1));
  EXPECT_EQ(named(linked, linked[1].given[0].from), "0: x");
}

TEST_F(RegionDataflow, SeveralReadersSendGradientsTheLastReaderFirst) {
  const auto y = run_region(x_, parameter());
  const auto a = run_region(y, parameter());
  const auto b = run_region(y, parameter());
  const auto linked = runs(a + b);
  const auto& gradients = linked[0].incoming[0].gradients;
  ASSERT_THAT(gradients, SizeIs(2));
  EXPECT_EQ(gradients[0].run, 2);
  EXPECT_EQ(gradients[1].run, 1);
}

TEST_F(RegionDataflow, AnOutputThatNobodyHoldsGetsNoGradient) {
  run_region(x_, parameter());
  const auto z = run_region(x_, parameter());
  const auto linked = runs(z);
  EXPECT_FALSE(linked[0].incoming[0].from_loss);
  EXPECT_THAT(linked[0].incoming[0].gradients, IsEmpty());
}

TEST_F(RegionDataflow, AnOutputThatSomebodyHoldsMayGetAGradient) {
  const auto held = run_region(x_, parameter());
  const auto z = run_region(x_, parameter());
  EXPECT_TRUE(runs(z)[0].incoming[0].from_loss);
}

// ---- what lives to the end of the step ----

TEST_F(RegionDataflow, GradientsOfParametersLiveToTheEndAndThoseForOtherRegionsDoNot) {
  const auto y = run_region(x_, parameter());
  const auto z = run_region(y, parameter());
  const auto linked = runs(z);
  // The output of the last region is returned; that of the first only the other region reads.
  EXPECT_THAT(names_of(linked, 0, linked[0].live_to_end),
              UnorderedElementsAre("0: made by aten_recompute::mm_grad_mat2"));
  EXPECT_THAT(names_of(linked, 1, linked[1].live_to_end),
              UnorderedElementsAre("1: mm_0_y", "1: made by aten_recompute::mm_grad_mat2"));
}

TEST_F(RegionDataflow, AParameterOfTwoRegionsHasOneGradient) {
  const auto w = parameter();
  const auto y = run_region(x_, w);
  const auto z = run_region(y, w);
  const auto linked = runs(z);
  // The later region's backward runs first; the other adds to its gradient.
  EXPECT_THAT(names_of(linked, 0, linked[0].live_to_end), IsEmpty());
  EXPECT_THAT(names_of(linked, 1, linked[1].live_to_end),
              Contains("1: made by aten_recompute::mm_grad_mat2"));
}

}  // namespace
}  // namespace aten_recompute
