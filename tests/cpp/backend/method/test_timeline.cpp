// timeline(): the memory of a step as JSON.
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Timeline : public test::TorchTest {};

Module lowered_model(const std::string& options) {
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(4, 8));
  model.define("def forward(self, x):\n    return self.first.forward(x).tanh().sigmoid().sum()\n");
  return lower(model, options);
}

void train(Module& lowered) {
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
}

TEST_F(Timeline, HasTheBlocksOfAStepThatAddUpToItsPeak) {
  auto lowered = lowered_model(R"({"strategy": "names", "keywords": ["tanh"], "profile": true})");
  train(lowered);
  const auto timeline_json = json::parse(timeline(lowered, /*tradeoff=*/true));
  EXPECT_EQ(timeline_json["format"], "aten_recompute.timeline/1");
  const auto& method = timeline_json["methods"].at(0);
  EXPECT_EQ(method["method"], "forward");
  EXPECT_EQ(method["has_run"], true);
  const auto& chart = method["charts"].at(0);
  const auto variant =
      json::parse(report(lowered))["methods"][0]["specialisations"][0]["regions"][0]["variants"][0];
  for (const auto& [name, key] : {std::pair{"planned", "predicted_peak_bytes"},
                                  std::pair{"unplanned", "unplanned_peak_bytes"}}) {
    const auto& step = chart[name];
    EXPECT_EQ(step["peak_bytes"], variant[key]);
    const auto moments = step["moments"]["bytes"].get<std::vector<int64_t>>();
    std::vector<int64_t> sums(moments.size(), 0);
    const auto& blocks = step["blocks"];
    for (size_t i = 0; i < blocks["bytes"].size(); ++i) {
      for (auto k = blocks["begin"][i].get<size_t>(); k < blocks["end"][i].get<size_t>(); ++k)
        sums[k] += blocks["bytes"][i].get<int64_t>();
    }
    EXPECT_EQ(sums, moments);
    EXPECT_EQ(*std::max_element(sums.begin(), sums.end()), step["peak_bytes"].get<int64_t>());
  }
  EXPECT_EQ(chart["tradeoff"][0]["peak_bytes"], variant["unplanned_peak_bytes"]);
  const auto names = chart["names"].get<std::vector<std::string>>();
  EXPECT_NE(std::find(names.begin(), names.end(), "loss"), names.end());
}

TEST_F(Timeline, IsEmptyBeforeTheFirstStepAndWithoutAProfile) {
  auto lowered = lowered_model(R"({"strategy": "none"})");
  EXPECT_EQ(json::parse(timeline(lowered))["methods"][0]["has_run"], false);
  train(lowered);
  const auto method = json::parse(timeline(lowered))["methods"][0];
  EXPECT_EQ(method["has_run"], true);
  EXPECT_TRUE(method["charts"].empty());
}

TEST_F(Timeline, RefusesWhatIsNotLowered) {
  const auto model = test::make_module("Plain");
  EXPECT_THAT([&] { timeline(model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("timeline")));
}

}  // namespace
}  // namespace aten_recompute
