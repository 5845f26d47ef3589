#include "passes/frontend/prepare.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::listing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;
using torch::jit::Module;

class Prepare : public test::TorchTest {};

struct Prepared {
  std::shared_ptr<Graph> graph;
  Assumptions assumptions;
};

Prepared prepare_forward(const Module& module, const std::vector<c10::IValue>& inputs) {
  Prepared prepared;
  prepared.graph = test::method_graph(module);
  inline_modules(prepared.graph);
  prepared.assumptions = fold_call(prepared.graph, module._ivalue(), inputs);
  prepare(prepared.graph, module._ivalue(), prepared.assumptions);
  prepared.graph->lint();
  return prepared;
}

Module define(const std::string& source) {
  auto module = test::make_module("M");
  module.define(source);
  return module;
}

TEST_F(Prepare, IfsOnTrainingAreDecidedAndAssumed) {
  auto module = define(R"(
def forward(self, x):
    if self.training:
        x = torch.relu(x)
    else:
        x = torch.tanh(x)
    return x
)");
  const auto x = at::randn({2});
  const auto training = prepare_forward(module, {x});
  EXPECT_THAT(listing(*training.graph), ElementsAre(HasSubstr("aten::relu(x.1)")));
  EXPECT_TRUE(training.assumptions.hold(module._ivalue(), {x}));

  module.eval();
  EXPECT_FALSE(training.assumptions.hold(module._ivalue(), {x}));
  const auto evaluation = prepare_forward(module, {x});
  EXPECT_THAT(find_nodes(*evaluation.graph, "aten::tanh"), SizeIs(1));
  EXPECT_THAT(find_nodes(*evaluation.graph, "aten::relu"), IsEmpty());
  EXPECT_TRUE(evaluation.assumptions.hold(module._ivalue(), {x}));
}

TEST_F(Prepare, IfsOnNoneAreDecidedAndAssumed) {
  const auto module = define(R"(
def forward(self, x, mask: Optional[Tensor] = None):
    if mask is not None:
        x = x * mask
    return torch.relu(x)
)");
  const auto x = at::randn({2});
  const auto mask = at::ones({2});
  const auto without = prepare_forward(module, {x, c10::IValue()});
  EXPECT_THAT(find_nodes(*without.graph, "prim::If"), IsEmpty());
  EXPECT_THAT(find_nodes(*without.graph, "aten::mul"), IsEmpty());
  EXPECT_TRUE(without.assumptions.hold(module._ivalue(), {x, c10::IValue()}));
  EXPECT_FALSE(without.assumptions.hold(module._ivalue(), {x, mask}));

  const auto with = prepare_forward(module, {x, mask});
  EXPECT_THAT(find_nodes(*with.graph, "prim::If"), IsEmpty());
  EXPECT_THAT(find_nodes(*with.graph, "aten::mul"), SizeIs(1));
  EXPECT_TRUE(with.assumptions.hold(module._ivalue(), {x, mask}));
  EXPECT_FALSE(with.assumptions.hold(module._ivalue(), {x, c10::IValue()}));
}

TEST_F(Prepare, IfsOnTheRankAreDecidedAndAssumed) {
  const auto module = define(R"(
def forward(self, x):
    y = torch.relu(x)
    if y.dim() == 2:
        y = y.t()
    return torch.tanh(y)
)");
  const auto matrix = at::randn({2, 3});
  const auto vector = at::randn({3});
  const auto prepared = prepare_forward(module, {matrix});
  EXPECT_THAT(find_nodes(*prepared.graph, "prim::If"), IsEmpty());
  EXPECT_THAT(find_nodes(*prepared.graph, "aten::t"), SizeIs(1));
  EXPECT_TRUE(prepared.assumptions.hold(module._ivalue(), {matrix}));
  EXPECT_TRUE(prepared.assumptions.hold(module._ivalue(), {at::randn({7, 1})}));
  EXPECT_FALSE(prepared.assumptions.hold(module._ivalue(), {vector}));
  EXPECT_THAT(find_nodes(*prepare_forward(module, {vector}).graph, "aten::t"), IsEmpty());
}

// nn.MultiheadAttention notes in this way why it does not take its fast path.
TEST_F(Prepare, IfsOnAStringThatIsNeverEmptyAreDecided) {
  auto module = define(R"(
def forward(self, x, y):
    why = ""
    if x.dtype != y.dtype:
        why = "types are {} and {}".format(x.dtype, y.dtype)
    elif self.training:
        why = "training"
    if not why:
        x = torch.tanh(x)
    return torch.relu(x)
)");
  const auto x = at::randn({2});
  const auto training = prepare_forward(module, {x, x});
  EXPECT_THAT(listing(*training.graph), ElementsAre(HasSubstr("aten::relu(x.1)")));

  module.eval();
  const auto evaluation = prepare_forward(module, {x, x}).graph;
  EXPECT_THAT(find_nodes(*evaluation, "aten::tanh"), SizeIs(1));
  const auto types_differ = test::run_graph(evaluation, {module._ivalue(), x, x.to(at::kDouble)});
  EXPECT_TRUE(test::bitwise_equal(types_differ[0].toTensor(), at::relu(x)));
  const auto same_types = test::run_graph(evaluation, {module._ivalue(), x, x});
  EXPECT_TRUE(test::bitwise_equal(same_types[0].toTensor(), at::relu(at::tanh(x))));
}

TEST_F(Prepare, AFormatWithoutLettersMayBeEmpty) {
  const auto module = define(R"(
def forward(self, x, name: str):
    if "{}{}".format(name, name):
        x = torch.relu(x)
    if "<{}>".format(name):
        x = torch.tanh(x)
    return x
)");
  const auto x = at::randn({2});
  const auto graph = prepare_forward(module, {x, ""}).graph;
  EXPECT_THAT(find_nodes(*graph, "prim::If"), SizeIs(1));
  const auto y = test::run_graph(graph, {module._ivalue(), x, ""})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(y, at::tanh(x)));
}

// The second answer is known only once the first `if` is decided.
TEST_F(Prepare, IdentityIsKnownAfterAnotherIfIsDecided) {
  const auto module = define(R"(
def forward(self, x):
    a, b = x, x
    if a is b:
        a = torch.relu(a)
        b = a
    if a is b:
        a = torch.tanh(a)
        b = a
    if a is b:
        return torch.exp(a)
    return b
)");
  const auto graph = prepare_forward(module, {at::randn({2})}).graph;
  EXPECT_THAT(listing(*graph), ElementsAre(HasSubstr("aten::relu"), HasSubstr("aten::tanh"),
                                           HasSubstr("aten::exp")));
}

// The graph is valid for any sizes and types, because only the ranks were used.
TEST_F(Prepare, SizesAndTypesAreNotAssumed) {
  const auto module = define(R"(
def forward(self, x):
    return torch.relu(x).view(x.size(0) * x.size(1))
)");
  const auto prepared = prepare_forward(module, {at::randn({2, 3})});
  for (auto* node : find_nodes(*prepared.graph, "aten::relu")) {
    EXPECT_EQ(*node->output()->type(), *c10::TensorType::get());
  }
  const auto x = at::randn({4, 5}).to(at::kDouble);
  const auto y = test::run_graph(prepared.graph, {module._ivalue(), x})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(y, at::relu(x).view(20)));
}

TEST_F(Prepare, AnIfOnDataStays) {
  const auto module = define(R"(
def forward(self, x):
    if bool(x.sum() > 0):
        x = torch.relu(x)
    return x
)");
  EXPECT_THAT(find_nodes(*prepare_forward(module, {at::randn({2})}).graph, "prim::If"), SizeIs(1));
}

TEST_F(Prepare, TuplesBetweenOperatorsAreRemoved) {
  const auto module = define(R"(
def pair(self, x):
    return torch.relu(x), torch.tanh(x)
def forward(self, x):
    a, b = self.pair(x)
    return a + b
)");
  const auto prepared = prepare_forward(module, {at::randn({2})});
  EXPECT_THAT(find_nodes(*prepared.graph, "prim::TupleConstruct"), IsEmpty());
  EXPECT_THAT(find_nodes(*prepared.graph, "prim::TupleUnpack"), IsEmpty());
}

TEST_F(Prepare, LoopsWithAConstantTripCountAreUnrolled) {
  const auto module = define(R"(
def forward(self, x):
    for i in range(3):
        x = torch.relu(x) * i
    return x
)");
  const auto prepared = prepare_forward(module, {at::randn({2})});
  EXPECT_THAT(find_nodes(*prepared.graph, "prim::Loop"), IsEmpty());
  EXPECT_THAT(find_nodes(*prepared.graph, "aten::relu"), SizeIs(3));
}

TEST_F(Prepare, ListsThatGrowAreMadeByOneNode) {
  const auto module = define(R"(
def forward(self, x):
    parts: List[Tensor] = []
    for i in range(2):
        parts.append(x * i)
    return torch.cat(parts)
)");
  const auto prepared = prepare_forward(module, {at::randn({2})});
  EXPECT_THAT(find_nodes(*prepared.graph, "aten::append"), IsEmpty());
  const auto lists = find_nodes(*prepared.graph, "prim::ListConstruct");
  ASSERT_THAT(lists, SizeIs(1));
  EXPECT_EQ(lists[0]->inputs().size(), 2U);
}

TEST_F(Prepare, WritesToOwnValuesBecomeFunctional) {
  const auto module = define(R"(
def forward(self, x, w):
    return torch.mm(x, w).relu_()
)");
  const auto prepared = prepare_forward(module, {at::randn({2, 2}), at::randn({2, 2})});
  EXPECT_THAT(find_nodes(*prepared.graph, "aten::relu_"), IsEmpty());
  EXPECT_THAT(find_nodes(*prepared.graph, "aten::relu"), SizeIs(1));
}

TEST_F(Prepare, DropoutIsRemovedInEvaluationAndWithProbabilityZero) {
  auto module = define(R"(
def forward(self, x):
    return torch.dropout(torch.relu(x), 0.5, self.training)
)");
  const auto x = at::randn({2});
  EXPECT_THAT(find_nodes(*prepare_forward(module, {x}).graph, "aten::dropout"), SizeIs(1));
  module.eval();
  EXPECT_THAT(find_nodes(*prepare_forward(module, {x}).graph, "aten::dropout"), IsEmpty());
  const auto zero = define(R"(
def forward(self, x):
    return torch.dropout(torch.relu(x), 0.0, True)
)");
  EXPECT_THAT(find_nodes(*prepare_forward(zero, {x}).graph, "aten::dropout"), IsEmpty());
}

TEST_F(Prepare, AMethodWithoutIfsAssumesRanksOnly) {
  const auto module = test::make_linear(2, 3);
  const auto x = at::randn({5, 2});
  const auto prepared = prepare_forward(module, {x});
  EXPECT_THAT(prepared.assumptions.attributes, IsEmpty());
  ASSERT_THAT(prepared.assumptions.inputs, SizeIs(1));
  EXPECT_EQ(prepared.assumptions.inputs[0].rank, 2);
  EXPECT_EQ(prepared.graph->toString(false), test::method_graph(module)->toString(false));
}

}  // namespace
}  // namespace aten_recompute
