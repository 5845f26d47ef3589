#include "ir/size_numbers.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class SizeNumbers : public test::TorchTest {
 protected:
  // Returns the answers for all parameters of a function but the first, a tensor x.
  static std::vector<bool> of(const std::string& parameters, const std::string& body) {
    torch::jit::Module module("M");
    module.define("def forward(self, x, " + parameters + "):\n    return " + body + "\n");
    auto graph = module.get_method("forward").graph()->copy();
    graph->eraseInput(0);
    auto decide = numbers_that_decide_sizes(*graph);
    EXPECT_FALSE(decide.at(0));
    decide.erase(decide.begin());
    return decide;
  }
};

TEST_F(SizeNumbers, LengthsAndCountsDecide) {
  EXPECT_THAT(of("n: int", "x.repeat([n, 1])"), ElementsAre(true));
  EXPECT_THAT(of("n: int", "x.topk(n)[0]"), ElementsAre(true));
  EXPECT_THAT(of("n: int", "torch.arange(2 * n + 1)"), ElementsAre(true));
  EXPECT_THAT(of("n: int", "x[:n]"), ElementsAre(true));
  EXPECT_THAT(of("n: int, m: int", "x.narrow(0, n, m)"), ElementsAre(false, true));
}

TEST_F(SizeNumbers, FactorsAndPlacesDoNot) {
  EXPECT_THAT(of("n: int", "x * n + n"), ElementsAre(false));
  EXPECT_THAT(of("p: float", "torch.dropout(x, p, True)"), ElementsAre(false));
  EXPECT_THAT(of("n: int", "x[n]"), ElementsAre(false));
  EXPECT_THAT(of("n: int", "x.sum(n)"), ElementsAre(false));
  EXPECT_THAT(of("n: int", "x[n:n + 4]"), ElementsAre(false));
  EXPECT_THAT(of("n: int", "x * (1.0 - 0.5 ** n)"), ElementsAre(false));
}

}  // namespace
}  // namespace aten_recompute
