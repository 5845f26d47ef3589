// Pictures: the text that graphviz reads, files, and draw().
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "backend/pictures/draw_dot.h"
#include "backend/pictures/draw_timeline.h"
#include "backend/pictures/picture_file.h"
#include "planner/model/simulator.h"
#include "tests/cpp/support/plan_testing.h"
#include "tests/cpp/support/temporary_folder.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Draw : public test::TorchTest {
 protected:
  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder_.path() / name);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(folder_.path()))
      names.push_back(file.path().filename());
    return names;
  }

 private:
  test::TemporaryFolder folder_;
};

Module trained() {
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(4, 8));
  model.define("def forward(self, x):\n    return self.first.forward(x).tanh().sum()\n");
  auto lowered = lower(model, R"({"strategy": "none", "profile": true})");
  lowered.forward({at::randn({5, 4})}).toTensor().backward();
  return lowered;
}

TEST_F(Draw, DotGraphHasClustersInClusters) {
  DotGraph graph({{"rankdir", "TB"}}, {{"shape", "box"}}, {{"color", "#636363"}});
  const auto outer = graph.add_cluster(DotGraph::kNoCluster, {{"label", "outer"}});
  const auto inner = graph.add_cluster(outer, {{"label", "inner"}});
  const auto a = graph.add_node(inner, {{"label", "a \"quoted\"\\nb"}});
  const auto b = graph.add_node(DotGraph::kNoCluster, {{"label", "node"}});
  graph.add_edge(a, b, {{"label", "1.0 KiB"}});
  const auto text = graph.text();
  EXPECT_THAT(text, HasSubstr("subgraph cluster_0 {\ngraph [\nlabel=outer];\nsubgraph cluster_1"));
  EXPECT_THAT(text, HasSubstr(R"(0[label="a \"quoted\"\nb"];)"));
  EXPECT_THAT(text, HasSubstr("1[label=\"node \"];")) << "node is a word of the language";
  EXPECT_THAT(text, HasSubstr("0 -> 1[label=\"1.0 KiB\"];"));
  write_picture(path("x.svg"), PictureFormat::kSvg, text);
  EXPECT_THAT(text_of("x.svg"), HasSubstr("<svg"));
}

TEST_F(Draw, ReadsBytesAsPeopleDo) {
  EXPECT_EQ(readable_bytes(0), "0 B");
  EXPECT_EQ(readable_bytes(999), "999 B");
  EXPECT_EQ(readable_bytes(1000), "1.0 KiB");
  EXPECT_EQ(readable_bytes(300 * 1024), "300 KiB");
  EXPECT_EQ(readable_bytes(int64_t{5} << 40), "5.0 TiB");
}

TEST_F(Draw, TimelineHasABarForEachStep) {
  test::SmallProblemBuilder builder;
  const auto x = builder.held("x", 100);
  const auto a = builder.fresh("a", {x}, 2000);
  const auto b = builder.fresh("b", {a}, 1000);
  builder.start_backward();
  const auto db = builder.incoming("db", 1000);
  builder.result(builder.fresh("dx", {db, a, b}, 1000));
  const auto problem = builder.build();
  const auto unplanned = keep_what_is_read(problem);
  auto planned = unplanned;
  planned.drop(a, 0);
  const auto text = draw_timelines({{"a step", &problem, planned, unplanned, 5000}}).text();
  Simulator simulator(problem);
  const auto peak = readable_bytes(simulator.run(planned).peak_bytes);
  EXPECT_THAT(text, HasSubstr("a step: peak " + peak));
  EXPECT_THAT(text, HasSubstr("tooltip=\"computed again: "));
  EXPECT_THAT(text, HasSubstr("budget 4.9 KiB"));
  EXPECT_THAT(draw_timelines({{"a step", &problem, unplanned, unplanned, 0}}).text(),
              AllOf(Not(HasSubstr("tooltip=\"computed again: ")), Not(HasSubstr("budget"))));
}

TEST_F(Draw, WritesEveryFormat) {
  const auto lowered = trained();
  for (const auto* what : {"joint", "forward", "backward", "timeline"}) {
    for (const auto* ending : {".svg", ".png", ".dot"}) {
      draw(lowered, path(std::string(what) + ending), what);
      EXPECT_GT(text_of(std::string(what) + ending).size(), 300U);
    }
  }
  EXPECT_THAT(text_of("joint.dot"), AllOf(HasSubstr("Model.forward, joint"), HasSubstr("tanh")));
  EXPECT_THAT(text_of("joint.png"), StartsWith("\x89PNG"));
  EXPECT_EQ(files().size(), 12U) << "no temporary file stays";
}

TEST_F(Draw, SaysWhatIsWrong) {
  const auto lowered = trained();
  EXPECT_THAT([&] { draw(lowered, path("x.svg"), "all"); },
              ThrowsMessage<std::invalid_argument>(
                  StartsWith("draw: what is \"all\"; accepted are joint, forward, backward and")));
  EXPECT_THAT([&] { draw(lowered, path("x.gif")); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("ends in none of .svg")));
  EXPECT_THAT([&] { draw(lowered, path("x.svg"), "joint", "second"); },
              ThrowsMessage<std::invalid_argument>(
                  "draw: no operator belongs to a layer \"second\"; there are first"));
  EXPECT_THAT([&] { draw(unlower(lowered), path("x.svg")); },
              ThrowsMessage<std::invalid_argument>(StartsWith("draw: not a lowered module")));
  EXPECT_THAT([&] { draw(lowered, path("missing/x.dot")); },
              ThrowsMessage<std::runtime_error>("draw: cannot write " + path("missing/x.dot") +
                                                ": No such file or directory"));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Draw, NeedsGraphvizForPicturesOnly) {
  const auto lowered = trained();
  test::ScopedEnv env;
  env.set("PATH", path("nothing"));
  EXPECT_THAT([&] { draw(lowered, path("x.png")); },
              ThrowsMessage<std::runtime_error>(HasSubstr("graphviz, which draws it, is not")));
  draw(lowered, path("x.dot"));
  EXPECT_EQ(files(), std::vector<std::string>{"x.dot"});
}

}  // namespace
}  // namespace aten_recompute
