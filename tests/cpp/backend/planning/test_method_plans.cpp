#include "backend/planning/method_call.h"
#include "common/parse_options.h"

#include <ATen/Functions.h>

#include "backend/region/region.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A method of two regions, each y = exp(tanh(x @ w)), that are planned together.
class MethodPlansTest : public test::TorchTest {
 protected:
  explicit MethodPlansTest(const std::string& budget = "1.0")
      : options_(parse_options(
            R"({"strategy": "budget", "cost_model": "flops", "memory_budget": )" + budget + "}")),
        plans_(std::make_shared<MethodPlans>("forward", options_)),
        first_(make_region()),
        second_(make_region()) {}

  c10::intrusive_ptr<Region> make_region() const {
    return c10::make_intrusive<Region>(test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::tanh(%h)
  %y : Tensor = aten::exp(%a)
  return (%y)
)"),
                                       std::vector<bool>{false, true}, options_,
                                       /*is_one_of_several=*/true);
  }

  at::Tensor run(Region& region, const at::Tensor& x) const {
    torch::jit::Stack stack{x, w_};
    region.run(stack);
    return stack.back().toTensor();
  }

  struct Outcome {
    at::Tensor result;
    bool had_plan = false;
  };

  enum class Order { kBothRegions, kFirstRegionOnly, kSecondRegionFirst };

  // Does a training step with so many rows.
  Outcome call(int64_t rows, Order order = Order::kBothRegions) {
    const auto x = at::randn({rows, 4});
    MethodCall call(plans_, {x});
    Outcome outcome;
    outcome.had_plan = call.has_plan();
    outcome.result = run(order == Order::kSecondRegionFirst ? *second_ : *first_, x);
    if (order != Order::kFirstRegionOnly)
      outcome.result = run(order == Order::kSecondRegionFirst ? *first_ : *second_, outcome.result);
    call.finish(outcome.result);
    // A gradient with memory of its own, which plans assume.
    if (outcome.result.requires_grad())
      outcome.result.backward(at::ones_like(outcome.result));
    w_.mutable_grad() = at::Tensor();
    return outcome;
  }

  const Options options_;
  const std::shared_ptr<MethodPlans> plans_;
  const at::Tensor w_ = at::randn({4, 4}).requires_grad_();
  const c10::intrusive_ptr<Region> first_;
  const c10::intrusive_ptr<Region> second_;
};

TEST_F(MethodPlansTest, TheFirstCallIsRecordedAndPlannedAsAWhole) {
  EXPECT_FALSE(call(8).had_plan);
  ASSERT_THAT(plans_->plans(), SizeIs(1));
  const auto plan = plans_->plans().front();
  ASSERT_THAT(plan->runs, SizeIs(2));
  EXPECT_EQ(plan->runs[0].region, first_.get());
  EXPECT_EQ(plan->runs[1].region, second_.get());
  EXPECT_THAT(plan->linked, SizeIs(2));
  EXPECT_GT(plan->metrics.predicted_peak_bytes, 0);
}

TEST_F(MethodPlansTest, LaterCallsRunThePlan) {
  call(8);
  EXPECT_TRUE(call(8).had_plan);
  EXPECT_THAT(plans_->plans(), SizeIs(1));
}

TEST_F(MethodPlansTest, APlanServesSmallerInputsAndNotLargerOnes) {
  call(8);
  EXPECT_TRUE(call(5).had_plan);
  EXPECT_FALSE(call(9).had_plan);
  EXPECT_THAT(plans_->plans(), SizeIs(2));
  EXPECT_TRUE(call(9).had_plan);
}

TEST_F(MethodPlansTest, ThePlanForExactlyTheseInputsComesBeforeOneForLargerOnes) {
  call(5);
  call(8);
  call(8);
  const auto found = plans_->find(InputShapes({at::randn({5, 4})}));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found, plans_->plans().front());
}

TEST_F(MethodPlansTest, ThePlanThatWasNotUsedForLongestGoes) {
  for (int64_t rows = 1; rows <= static_cast<int64_t>(kMaxPlans); ++rows)
    call(rows);
  call(1);
  call(kMaxPlans + 1);
  EXPECT_THAT(plans_->plans(), SizeIs(kMaxPlans));
  const auto smallest = plans_->find(InputShapes({at::randn({1, 4})}));
  ASSERT_NE(smallest, nullptr);
  EXPECT_TRUE(smallest->inputs == InputShapes({at::randn({1, 4})}));
  const auto second = plans_->find(InputShapes({at::randn({2, 4})}));
  ASSERT_NE(second, nullptr) << "plans for larger inputs remain";
  EXPECT_FALSE(second->inputs == InputShapes({at::randn({2, 4})}));
}

TEST_F(MethodPlansTest, ACallThatRunsOtherRegionsIsWarnedOfAndTheNextIsRecorded) {
  call(8);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(call(8, Order::kSecondRegionFirst).had_plan);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("a call ran other regions than those planned for"));
  EXPECT_FALSE(call(8, Order::kSecondRegionFirst).had_plan);
  EXPECT_THAT(plans_->plans(), SizeIs(2));
  EXPECT_TRUE(call(8, Order::kSecondRegionFirst).had_plan);
}

TEST_F(MethodPlansTest, ACallThatEndsEarlyStillFollowsItsPlan) {
  call(8);
  EXPECT_TRUE(call(8, Order::kFirstRegionOnly).had_plan);
  EXPECT_TRUE(call(8).had_plan);
  EXPECT_THAT(plans_->plans(), SizeIs(1));
}

TEST_F(MethodPlansTest, AForgottenPlanIsMadeAgain) {
  call(8);
  plans_->forget(plans_->plans().front());
  EXPECT_THAT(plans_->plans(), IsEmpty());
  EXPECT_FALSE(call(8).had_plan);
  EXPECT_THAT(plans_->plans(), SizeIs(1));
}

TEST_F(MethodPlansTest, WithoutPlansACallPlansNothing) {
  const auto x = at::randn({8, 4});
  MethodCall call(nullptr, {x});
  EXPECT_EQ(MethodCall::current(), nullptr);
  const auto y = run(*first_, x);
  call.finish(y);
  EXPECT_THAT(first_->compiled_regions(), Not(IsEmpty()));
}

TEST_F(MethodPlansTest, TheInnermostCallOfTheThreadIsTheCurrentOne) {
  const auto x = at::randn({8, 4});
  EXPECT_EQ(MethodCall::current(), nullptr);
  {
    MethodCall outer(plans_, {x});
    EXPECT_EQ(MethodCall::current(), &outer);
    {
      MethodCall inner(plans_, {x});
      EXPECT_EQ(MethodCall::current(), &inner);
    }
    EXPECT_EQ(MethodCall::current(), &outer);
  }
  EXPECT_EQ(MethodCall::current(), nullptr);
}

TEST_F(MethodPlansTest, ACallWithoutGradientsPlansNothing) {
  const at::NoGradGuard guard;
  call(8);
  EXPECT_THAT(plans_->plans(), IsEmpty());
}

TEST_F(MethodPlansTest, GradientsAreThoseOfOrdinaryAutograd) {
  const auto x = at::randn({6, 4});
  auto eager = (x.mm(w_)).tanh().exp();
  eager = eager.mm(w_).tanh().exp();
  eager.sum().backward();
  const auto expected = w_.grad().clone();
  for (int step = 0; step < 3; ++step) {
    w_.mutable_grad() = at::Tensor();
    MethodCall call(plans_, {x});
    const auto y = run(*second_, run(*first_, x));
    call.finish(y);
    y.sum().backward();
    EXPECT_TRUE(test::bitwise_equal(w_.grad(), expected)) << step;
  }
}

class TightMethodPlans : public MethodPlansTest {
 protected:
  TightMethodPlans() : MethodPlansTest("\"100\"") {}
};

TEST_F(TightMethodPlans, ABudgetThatNoPlanKeepsIsAnError) {
  EXPECT_THAT([&] { call(8); },
              ::testing::ThrowsMessage<std::exception>(HasSubstr("memory_budget")));
  EXPECT_THAT(plans_->plans(), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
