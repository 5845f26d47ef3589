// The C++ API of single passes.
#include <aten_recompute/passes.h>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/testing/file_check.h>

#include <stdexcept>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using torch::jit::testing::FileCheck;

class RunByName : public test::TorchTest {};

std::shared_ptr<torch::jit::Graph> region() {
  auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"IR(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  %z : Tensor = aten::sin(%y)
  return (%z))IR",
                      graph.get());
  return graph;
}

TEST_F(RunByName, PassesOfARegionOneByOne) {
  const auto joint = passes::run("differentiate", region()).front();
  EXPECT_EQ(passes::run("plan", joint, {.options = R"({"strategy": "all"})"}).front(), joint);
  passes::run("splice", joint);
  FileCheck().check("backward_start")->check("aten::mm[recomputed=1]")->run(*joint);
  EXPECT_THAT(passes::run("extract", joint), SizeIs(2));
}

TEST_F(RunByName, EachPassHasANameAndALine) {
  EXPECT_EQ(passes::names().front().first, "inline_modules");
  for (const auto& [name, line] : passes::names())
    EXPECT_THAT(line, Not(IsEmpty())) << name;
}

TEST_F(RunByName, ErrorsNameWhatWouldBeRight) {
  EXPECT_THAT([] { passes::run("splise", region()); },
              ThrowsMessage<std::invalid_argument>(
                  AllOf(HasSubstr("no pass \"splise\""), HasSubstr("did you mean \"splice\""))));
  EXPECT_THAT([] { passes::run("splice", region()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("needs a joint graph")));
}

}  // namespace
}  // namespace aten_recompute
