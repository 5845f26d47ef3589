#include "common/parse_options.h"
#include "passes/strategy/strategies.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Strategies : public test::TorchTest {};

// Three layers  h = mm(x, w), a = relu(h),  each of which reads the one before. The backward reads
// a0, a1 and a2.
//   layer of    stem: -1    h0, a0: 0    h1, a1: 1    h2, a2: 2    y: as its input, 2
JointGraph three_layers() {
  auto joint = test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %stem : Tensor = aten::tanh(%x)
  %h0 : Tensor = aten::mm(%stem, %w)
  %a0 : Tensor = aten::relu(%h0)
  %h1 : Tensor = aten::mm(%a0, %w)
  %a1 : Tensor = aten::relu(%h1)
  %h2 : Tensor = aten::mm(%a1, %w)
  %a2 : Tensor = aten::relu(%h2)
  %y : Tensor = aten::neg(%a2)
  aten_recompute::backward_start()
  %g2 : Tensor = aten::threshold_backward(%dy, %a2, %zero)
  %g1 : Tensor = aten::threshold_backward(%g2, %a1, %zero)
  %g0 : Tensor = aten::threshold_backward(%g1, %a0, %zero)
  %gx : Tensor = aten::tanh_backward(%g0, %stem)
  return (%y, %gx)
)");
  for (const auto& [name, layer] : std::vector<std::pair<std::string, int64_t>>{
           {"h0", 0}, {"a0", 0}, {"h1", 1}, {"a1", 1}, {"h2", 2}, {"a2", 2}}) {
    find_value(*joint.graph, name)->node()->i_(symbols::kLayer, layer);
  }
  return joint;
}

std::vector<std::string> saved(const JointGraph& joint, const std::string& json,
                               const ValueBytes& bytes = {}) {
  const auto options = parse_options(json);
  const std::vector<bool> is_attribute{false, true};
  const PlanInput input{joint, options, is_attribute, bytes};
  switch (options.strategy) {
    case StrategyKind::kAll:
      return test::saved_names(joint, plan_all_layers(input));
    case StrategyKind::kLayers:
      return test::saved_names(joint, plan_some_layers(input));
    case StrategyKind::kNames:
    case StrategyKind::kOps:
      return test::saved_names(joint, plan_words(input));
    case StrategyKind::kSegments:
      return test::saved_names(joint, segment_plans(input).front());
    default:
      return test::saved_names(joint, save_everything(joint));
  }
}

ValueBytes bytes_of(const JointGraph& joint,
                    const std::vector<std::pair<std::string, int64_t>>& sizes) {
  ValueBytes bytes;
  for (const auto& [name, size] : sizes) {
    bytes[find_value(*joint.graph, name)->unique()] = size;
  }
  return bytes;
}

TEST_F(Strategies, NoneSavesWhatTheBackwardReads) {
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "none"})"),
              ElementsAre("stem", "a0", "a1", "a2"));
}

// The inputs of layers are saved, and so is the last layer's output, which y reads outside of
// layers.
TEST_F(Strategies, AllSavesTheInputsOfLayers) {
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "all"})"), ElementsAre("stem", "a0", "a1"));
}

TEST_F(Strategies, AllWithoutLayersSavesNothing) {
  auto joint = three_layers();
  for (auto* node : joint.graph->nodes()) {
    if (node->hasAttribute(symbols::kLayer)) {
      node->removeAttribute(symbols::kLayer);
    }
  }
  EXPECT_THAT(saved(joint, R"({"strategy": "all"})"), IsEmpty());
}

// Layer 1 is recomputed from its input a0; stem and a2 belong to no selected layer.
TEST_F(Strategies, LayersRecomputesTheSelectedOnes) {
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "layers", "start": 1, "stride": 2})"),
              ElementsAre("stem", "a0", "a1", "a2"));
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "layers", "start": 2, "stride": 2})"),
              ElementsAre("stem", "a0", "a1"));
}

// Half of three layers are llround(1.5) = 2, layers 0 and 1.
TEST_F(Strategies, ARatioSelectsTheFirstLayers) {
  auto joint = three_layers();
  // g1 also reads h1, which is inside layer 1, so h1 is saved unless layer 1 is recomputed.
  find_value(*joint.graph, "g1")->node()->replaceInput(1, find_value(*joint.graph, "h1"));
  EXPECT_THAT(saved(joint, R"({"strategy": "none"})"), ElementsAre("stem", "a0", "h1", "a2"));
  EXPECT_THAT(saved(joint, R"({"strategy": "layers", "ratio": 0.5})"),
              ElementsAre("stem", "a0", "a1", "a2"));
  // A third is layer 0 alone, and h1 is saved.
  EXPECT_THAT(saved(joint, R"({"strategy": "layers", "ratio": 0.3})"),
              ElementsAre("stem", "a0", "h1", "a1", "a2"));
}

TEST_F(Strategies, NamesRecomputesValuesThatContainAKeyword) {
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "names", "keywords": ["a1", "%ste"]})"),
              ElementsAre("a0", "a2"));
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "names", "keywords": ["nothing"]})"),
              ElementsAre("stem", "a0", "a1", "a2"));
}

TEST_F(Strategies, OpsRecomputesByOperator) {
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "ops", "ops": ["relu"]})"),
              ElementsAre("stem"));
  EXPECT_THAT(saved(three_layers(), R"({"strategy": "ops", "ops": ["tanh", "mm"]})"),
              ElementsAre("a0", "a1", "a2"));
}

// Separators are stem, h0, a0, h1, a1, h2, a2, y. The backward reads stem, a0, a1 and a2, of 4, 16,
// 16 and 16 bytes; other values have 100. If nothing is kept, 4 + 16 + 16 + 16 = 52 bytes are
// recomputed at once. Keeping a0 takes 16 + max(4 + 16, 16 + 16) = 48 bytes, keeping a1 takes
// 16 + max(36, 16) = 52, and keeping both takes 32 + 20 = 52.
TEST_F(Strategies, SegmentsKeepsTheBestSeparators) {
  const auto joint = three_layers();
  const auto bytes = bytes_of(joint, {{"stem", 4},
                                      {"h0", 100},
                                      {"a0", 16},
                                      {"h1", 100},
                                      {"a1", 16},
                                      {"h2", 100},
                                      {"a2", 16},
                                      {"y", 100}});
  EXPECT_THAT(saved(joint, R"({"strategy": "segments"})", bytes), ElementsAre("a0"));
  EXPECT_THAT(saved(joint, R"({"strategy": "segments", "count": 1})", bytes), IsEmpty());
  // At most 20 bytes each: 4 + 16 | 16 | 16, cut at the small separators.
  EXPECT_THAT(saved(joint, R"({"strategy": "segments", "count": 3})", bytes),
              ElementsAre("a0", "a1"));
}

TEST_F(Strategies, OnlySomeStrategiesNeedAProfile) {
  EXPECT_TRUE(needs_profile(parse_options(R"({"strategy": "segments"})")));
  for (const char* strategy : {"none", "all"}) {
    Options options = parse_options(std::string(R"({"strategy": ")") + strategy + "\"}");
    EXPECT_FALSE(needs_profile(options)) << strategy;
  }
}

TEST_F(Strategies, AMaskThatNeedsNoGradientIsSavedBesideTheSeparators) {
  auto joint = test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %lengths : Tensor, %dy : Tensor):
  %mask : Tensor = aten::sign(%lengths)
  %h : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%h, %mask)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %mask)
  %d2 : Tensor = aten::mul(%d1, %h)
  return (%y, %d2)
)");
  for (const char* name : {"lengths", "mask"}) {
    joint.requires_grad.erase(find_value(*joint.graph, name)->unique());
  }
  const auto options = parse_options(R"({"strategy": "segments", "count": 1})");
  const auto bytes = bytes_of(joint, {{"mask", 1}, {"h", 8}, {"y", 8}});
  const auto plan = segment_plans({joint, options, {false, false}, bytes}).front();
  EXPECT_THAT(test::saved_names(joint, plan), ElementsAre("mask"));
}

TEST_F(Strategies, TheLayerOfANodeIsTheHighestOfItsOwnAndItsInputs) {
  auto joint = three_layers();
  const auto layers = value_layers(joint);
  auto layer = [&](const std::string& name) {
    return layers.at(find_value(*joint.graph, name)->unique());
  };
  EXPECT_EQ(layer("stem"), -1);
  EXPECT_EQ(layer("h0"), 0);
  EXPECT_EQ(layer("a1"), 1);
  EXPECT_EQ(layer("y"), 2);  // neg() is in no layer, so it gets the layer of its operand
  // Values of the backward have no layers.
  EXPECT_EQ(layers.count(find_value(*joint.graph, "g1")->unique()), 0U);
}

TEST_F(Strategies, MarkLayerSetsTheLayerOfLaterNodes) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %three : int = prim::Constant[value=3]()
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::sin(%x)
  %m : Tensor = aten_recompute::mark_layer(%a, %three)
  %b : Tensor = aten::cos(%m)
  %n : Tensor = aten_recompute::mark_layer(%b, %one)
  %c : Tensor = aten::exp(%n)
  return (%c)
)");
  const auto layers = value_layers(joint);
  std::vector<int64_t> numbers;
  for (const char* name : {"a", "m", "b", "n", "c"}) {
    numbers.push_back(layers.at(find_value(*joint.graph, name)->unique()));
  }
  EXPECT_THAT(numbers, ElementsAre(-1, 3, 3, 1, 1));
}

}  // namespace
}  // namespace aten_recompute
