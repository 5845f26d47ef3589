// estimate() and profile() in a process without Python, whose kernels for meta tensors are missing
// here.
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Estimate : public test::TorchTest {};

Module make_model(const std::string& forward) {
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(16, 64));
  model.register_module("second", test::make_linear(64, 16));
  model.register_parameter("filter", at::randn({32, 16, 3, 3}).requires_grad_(true), false);
  model.register_parameter("table", at::randn({10, 16}).requires_grad_(true), false);
  model.register_parameter("weights", at::randn({16, 32}).requires_grad_(true), false);
  model.register_parameter("scale", at::ones({32}).requires_grad_(true), false);
  model.define(forward);
  return model;
}

const char* const kPerceptron = R"(
def forward(self, x):
    h = torch.gelu(self.first.forward(x))
    return torch.softmax(self.second.forward(h), 1).pow(2).sum()
)";

// Returns the peak without recomputation that a step is planned with.
int64_t peak_of_step(const Module& model, const std::vector<c10::IValue>& inputs) {
  auto lowered =
      lower(model, R"({"strategy": "budget", "memory_budget": 1.0, "cost_model": "flops"})");
  lowered.forward(inputs);
  return json::parse(report(lowered))["methods"][0]["specialisations"][0]["regions"][0]["variants"]
                                     [0]["unplanned_peak_bytes"];
}

int64_t estimated_peak(const Module& model, const std::vector<c10::IValue>& inputs) {
  return json::parse(estimate(model, inputs))["unplanned_peak_bytes"];
}

TEST_F(Estimate, PredictsThePeakOfLayersInAProcessWithoutPython) {
  const auto x = at::randn({32, 16});
  const auto model = make_model(kPerceptron);
  EXPECT_EQ(estimated_peak(model, {x}), peak_of_step(model, {x}));
}

TEST_F(Estimate, PredictsThePeakOfAConvolutionWithNorm) {
  const auto model = make_model(R"(
def forward(self, x):
    y = torch.conv2d(x, self.filter, None, padding=1)
    y = torch.relu(torch.batch_norm(y, self.scale, None, None, None, True, 0.1, 1e-5, True))
    y = torch.max_pool2d(y, 2)
    return torch.adaptive_avg_pool2d(y, [1, 1]).sum()
)");
  const auto x = at::randn({4, 16, 32, 32});
  const auto peak = static_cast<double>(peak_of_step(model, {x}));
  EXPECT_NEAR(static_cast<double>(estimated_peak(model, {x})), peak, 0.05 * peak);
}

// Kernels of this library compute the batch norm of contiguous images, ATen's those of other
// tensors, and these take more memory.
TEST_F(Estimate, PredictsThePeakOfABatchNormWithoutPositions) {
  const auto model = make_model(R"(
def forward(self, x):
    y = torch.batch_norm(x.matmul(self.weights), self.scale, None, None, None, True, 0.1, 1e-5, True)
    return torch.relu(y).sum()
)");
  const auto x = at::randn({512, 16});
  EXPECT_NEAR(estimated_peak(model, {x}), peak_of_step(model, {x}), 1024);
}

TEST_F(Estimate, PredictsThePeakOfAnEmbeddingWithDropoutAndCrossEntropy) {
  const auto model = make_model(R"(
def forward(self, tokens):
    y = torch.dropout(torch.embedding(self.table, tokens), 0.5, True)
    y = torch.layer_norm(y, [16]).matmul(self.table.t())
    return torch.cross_entropy_loss(y.view(-1, 10), tokens.view(-1))
)");
  const auto tokens = at::randint(10, {8, 32});
  EXPECT_EQ(estimated_peak(model, {tokens}), peak_of_step(model, {tokens}));
}

TEST_F(Estimate, AnswersForEachBudget) {
  const auto result = json::parse(
      estimate(make_model(kPerceptron), {at::randn({512, 16})}, {"0.9", "1000 B", "100 MiB"}));
  const auto& budgets = result["budgets"];
  EXPECT_EQ(budgets[0]["budget"], "0.9");
  EXPECT_LE(budgets[0]["peak_bytes"], budgets[0]["budget_bytes"]);
  EXPECT_GT(budgets[0]["recomputed_flops"], 0.0);
  EXPECT_FALSE(budgets[1]["reachable"]);
  EXPECT_EQ(budgets[2]["peak_bytes"], result["unplanned_peak_bytes"]);
  EXPECT_EQ(budgets[2]["recomputed_flops"], 0.0);
}

TEST_F(Estimate, TakesMetaTensors) {
  auto model = make_model(kPerceptron);
  const auto x = at::randn({32, 16});
  const auto expected = estimated_peak(model, {x});
  EXPECT_EQ(estimated_peak(model, {x.to(at::kMeta)}), expected);
}

TEST_F(Estimate, NamesWhatIsWrongInOneLine) {
  const auto model = make_model(kPerceptron);
  const auto x = at::randn({32, 16});
  EXPECT_THAT([&] { estimate(model, {x}, {"2.5 apples"}); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr("got \"2.5 apples\""), Not(HasSubstr("\n")))));
  EXPECT_THAT([&] { estimate(model, {x}, {}, {.method = "foward"}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("did you mean \"forward\"?")));
  EXPECT_THAT([&] { estimate(model, {}, {}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("missing value for argument 'x'")));
  EXPECT_THAT([&] { estimate(model, {x}, {}, {.device = "abacus"}); },
              ThrowsMessage<std::runtime_error>(HasSubstr("device: \"abacus\" is none")));
}

TEST_F(Estimate, ProfileListsOperators) {
  for (const bool meta : {false, true}) {
    const auto result = json::parse(profile(make_model(kPerceptron), {at::randn({32, 16})}, meta));
    const auto& linear = result["nodes"][0];
    EXPECT_EQ(linear["module"], "first");
    EXPECT_EQ(linear["results"][0]["sizes"], json({32, 64}));
    EXPECT_EQ(linear["bytes"], 32 * 64 * 4);
    EXPECT_EQ(linear["seconds"].is_null(), meta);
  }
}

TEST_F(Estimate, RegisteredShapesAndCountsAreUsed) {
  register_shape("aten::gelu", "def shape(self):\n    return torch.empty_like(self)\n");
  register_flops("aten::gelu", "def flops(self):\n    return 1000 * self.numel()\n");
  const auto result = json::parse(profile(make_model(kPerceptron), {at::randn({32, 16})}, true));
  bool found = false;
  for (const auto& node : result["nodes"])
    found = found || node["flops"] == 1000.0 * 32 * 64;
  EXPECT_TRUE(found);
  EXPECT_THAT([] { register_shape("aten::gelu", "def shape(self):\n    return self\n"); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("register_shape: aten::gelu: it has been given a shape already")));
  EXPECT_THAT([] { register_flops("aten::nothing", "def flops(x):\n    return 1\n"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("there is no such operator")));
}

}  // namespace
}  // namespace aten_recompute
