// perfetto() and memory_viz(): a step in the formats of viewers.
#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/timeline.h>
#include <aten_recompute/traces.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Traces : public test::TorchTest {};

Module lowered_model(const std::string& options) {
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(4, 8));
  model.define("def forward(self, x):\n    return self.first.forward(x).tanh().sigmoid().sum()\n");
  return lower(model, options);
}

TEST_F(Traces, OfPerfettoHaveThePhasesAndThePeaksOfTheTimeline) {
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

TEST_F(Traces, OfMemoryVizAreAPickle) {
  auto lowered = lowered_model(R"({"strategy": "none", "profile": true})");
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
  const auto bytes = memory_viz(lowered);
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x04");
  EXPECT_EQ(bytes.back(), '.');
  EXPECT_THAT(bytes, HasSubstr("free_completed"));
}

TEST_F(Traces, SayWhatToDoWhereThereIsNothing) {
  auto lowered = lowered_model(R"({"strategy": "none"})");
  EXPECT_THAT([&] { perfetto(lowered); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("run a training step first")));
  lowered.forward({at::ones({3, 4})}).toTensor().backward();
  EXPECT_THAT([&] { memory_viz(lowered); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("there is no profile")));
}

}  // namespace
}  // namespace aten_recompute
