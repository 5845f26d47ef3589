// timeline(), perfetto() and memory_viz(): the memory of a step as JSON, and in the formats of
// viewers.
#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/traces.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
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

void train_a_step(Module& lowered) {
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
}

TEST_F(Timeline, HasTheBlocksOfAStepThatAddUpToItsPeak) {
  auto lowered = lowered_model(R"({"strategy": "names", "keywords": ["tanh"], "profile": true})");
  train_a_step(lowered);
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
  train_a_step(lowered);
  const auto method = json::parse(timeline(lowered))["methods"][0];
  EXPECT_EQ(method["has_run"], true);
  EXPECT_TRUE(method["charts"].empty());
}

TEST_F(Timeline, RefusesWhatIsNotLowered) {
  const auto model = test::make_module("Plain");
  EXPECT_THAT([&] { timeline(model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("timeline")));
}

TEST_F(Timeline, AsATraceForPerfettoHasThePhasesAndThePeaks) {
  auto lowered = lowered_model(R"({"strategy": "names", "keywords": ["tanh"], "profile": true})");
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
  const auto chart = json::parse(timeline(lowered))["methods"][0]["charts"][0];
  const auto events = json::parse(perfetto(lowered))["traceEvents"];
  for (const auto& [pid, step] : {std::pair{1, "planned"}, std::pair{2, "unplanned"}}) {
    std::set<std::string> phases;
    size_t num_operators = 0;
    int64_t peak = 0;
    for (const auto& event : events) {
      if (event["pid"] != pid)
        continue;
      if (event.value("cat", "") == "phase")
        phases.insert(event["name"]);
      num_operators += event.value("cat", "") == "operator" ? 1 : 0;
      if (event["name"] == "memory")
        peak = std::max(peak, event["args"]["bytes"].get<int64_t>());
    }
    EXPECT_EQ(phases.count("recomputation"), pid == 1 ? 1U : 0U);
    EXPECT_EQ(num_operators, chart[step]["moments"]["name"].size());
    EXPECT_EQ(peak, chart[step]["peak_bytes"]);
  }
}

TEST_F(Timeline, AsASnapshotIsAPickle) {
  auto lowered = lowered_model(R"({"strategy": "none", "profile": true})");
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
  const auto bytes = memory_viz(lowered);
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x04");
  EXPECT_EQ(bytes.back(), '.');
  EXPECT_THAT(bytes, HasSubstr("free_completed"));
}

TEST_F(Timeline, AsATraceSaysWhatToDoWhereThereIsNothing) {
  auto lowered = lowered_model(R"({"strategy": "none"})");
  EXPECT_THAT([&] { perfetto(lowered); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("run a training step first")));
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
  EXPECT_THAT([&] { memory_viz(lowered); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("there is no profile")));
}

}  // namespace
}  // namespace aten_recompute
