#include "passes/strategy/tags.h"

#include <stdexcept>
#include <vector>

#include "common/log.h"
#include "tests/cpp/support/profiled_region.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::region;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kTaggedExp = "%a : Tensor = aten::exp(%h)";
const std::string kReadsTagged = "%d : Tensor = aten::mul(%dy, %a)";

class Tags : public test::TorchTest {
 protected:
  void SetUp() override {
    set_log_sink_for_testing(
        [this](LogLevel, const std::string& message) { messages_.push_back(message); });
  }
  void TearDown() override { set_log_sink_for_testing(nullptr); }

  std::vector<std::string> messages_;
};

std::vector<std::string> tags_of(const test::ProfiledRegion& region) {
  std::vector<std::string> lines;
  const auto tags = value_tags(region.graph);
  for (size_t i = 0; i < tags.size(); ++i) {
    if (tags[i] != Tag::kNone)
      lines.push_back(region.graph.problem.value_names[i] + " " + to_string(tags[i]));
  }
  return lines;
}

TEST_F(Tags, ATagOnAViewStandsOnItsBase) {
  const auto view = region(kTaggedExp +
                               "\n  %t : Tensor = aten::t(%a)\n"
                               "  %u : Tensor = aten_recompute::must_save(%t)\n"
                               "  %v : Tensor = aten_recompute::prefer_recompute(%h)",
                           kReadsTagged, {{}, {{"t", "a"}, {"u", "a"}, {"v", "h"}}});
  EXPECT_THAT(tags_of(view), ElementsAre("h prefer_recompute", "a must_save"));
}

TEST_F(Tags, MustComesBeforePreferAndTheLastPreferenceCounts) {
  const auto several = region(R"(%a : Tensor = aten_recompute::must_save(%h)
  %b : Tensor = aten_recompute::prefer_recompute(%a)
  %e : Tensor = aten::exp(%b)
  %f : Tensor = aten_recompute::prefer_recompute(%e)
  %g : Tensor = aten_recompute::prefer_save(%f))",
                              "%d : Tensor = aten::mul(%dy, %e)",
                              {{}, {{"a", "h"}, {"b", "h"}, {"f", "e"}, {"g", "e"}}});
  EXPECT_THAT(tags_of(several), ElementsAre("h must_save", "e prefer_save"));
}

TEST_F(Tags, MustSaveAndMustRecomputeContradictEachOther) {
  const auto both = region(R"(%a : Tensor = aten_recompute::must_save(%h)
  %b : Tensor = aten_recompute::must_recompute(%a))",
                           kReadsTagged, {{}, {{"a", "h"}, {"b", "h"}}});
  EXPECT_THAT([&] { value_tags(both.graph); },
              ::testing::ThrowsMessage<std::invalid_argument>(
                  "aten_recompute: value %h is tagged must_save and must_recompute"));
}

TEST_F(Tags, OutputsOfTheRegionLiveToTheEnd) {
  const auto returned = region(kTaggedExp + "\n  %t : Tensor = aten_recompute::must_recompute(%a)",
                               kReadsTagged, {{}, {{"t", "a"}}}, "t");
  EXPECT_THAT(tags_of(returned), IsEmpty());
  EXPECT_THAT(messages_, ElementsAre("value %a is tagged must_recompute, but it is saved: "
                                     "the region returns it"));
}

TEST_F(Tags, AnImpossibleMustRecomputeIsWarnedAbout) {
  const auto branch = region(R"(%a : Tensor = prim::If(%false)
    block0():
      %b : Tensor = aten::exp(%h)
      -> (%b)
    block1():
      -> (%h)
  %t : Tensor = aten_recompute::must_recompute(%a)
  %u : Tensor = aten_recompute::must_recompute(%x))",
                             kReadsTagged, {{}, {{"t", "a"}, {"u", "x"}}});
  EXPECT_THAT(tags_of(branch), IsEmpty());
  EXPECT_THAT(messages_, ElementsAre(AllOf(HasSubstr("%a is tagged must_recompute"),
                                           HasSubstr("control flow"))));
}

}  // namespace
}  // namespace aten_recompute
