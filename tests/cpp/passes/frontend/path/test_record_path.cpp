#include "passes/frontend/path/record_path.h"
#include "passes/frontend/rewrites/not_recordable.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "passes/frontend/path/path_guard.h"
#include "tests/cpp/support/recorded_path.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::record;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;
using torch::jit::Module;

class RecordPath : public test::TorchTest {};

Module define(const std::string& source) {
  auto module = test::make_module("M");
  module.register_buffer("count", at::zeros({1}));
  module.define(source);
  return module;
}

// Returns what the recorded graph returns for other inputs.
c10::IValue run(const RecordedPath& path, const Module& module, std::vector<c10::IValue> inputs) {
  inputs.insert(inputs.begin(), module._ivalue());
  return test::run_graph(path.graph, std::move(inputs)).at(0);
}

std::string reason_of(const Module& module, const std::vector<c10::IValue>& inputs) {
  try {
    record(module, inputs);
  } catch (const NotRecordable& error) {
    return error.what();
  }
  return "";
}

TEST_F(RecordPath, ABranchOnASizeBecomesACheckOfTheAnswer) {
  const auto module = define(R"(
def forward(self, x):
    y = torch.relu(x)
    if y.size(0) > 3:
        return y * 2
    return y
)");
  const auto path = record(module, {at::randn({2, 3})});
  EXPECT_THAT(find_nodes(*path.graph, "prim::If"), IsEmpty());
  EXPECT_THAT(find_nodes(*path.graph, "aten::mul"), IsEmpty());
  EXPECT_THAT(find_nodes(*path.graph, "aten_recompute::check_path"), SizeIs(1));
  const auto other = at::randn({3, 5});
  EXPECT_TRUE(run(path, module, {other}).toTensor().equal(at::relu(other)));
  EXPECT_ANY_THROW(run(path, module, {at::randn({4, 5})}));
}

TEST_F(RecordPath, ALoopIsUnrolledAndItsCountChecked) {
  const auto module = define(R"(
def forward(self, x):
    out = [x[0] * 0]
    for t in range(1, x.size(0)):
        out.append(x[t] * t)
    return torch.stack(out)
)");
  const auto path = record(module, {at::randn({3, 2})});
  EXPECT_THAT(find_nodes(*path.graph, "prim::Loop"), IsEmpty());
  EXPECT_THAT(find_nodes(*path.graph, "aten::append"), IsEmpty());
  EXPECT_THAT(find_nodes(*path.graph, "aten::mul"), SizeIs(3));
  const auto x = at::randn({3, 4});
  EXPECT_TRUE(run(path, module, {x}).toTensor().equal(x * at::arange(3).unsqueeze(1)));
  EXPECT_ANY_THROW(run(path, module, {at::randn({2, 4})}));
  EXPECT_ANY_THROW(run(path, module, {at::randn({4, 4})}));
}

TEST_F(RecordPath, AWhileLoopChecksItsConditionInEachIteration) {
  const auto module = define(R"(
def forward(self, x, n: int):
    while n > 1:
        x = x * n
        n = n // 2
    return x
)");
  const auto path = record(module, {at::ones({1}), 5});
  EXPECT_EQ(run(path, module, {at::ones({1}), 7}).toTensor().item<float>(), 21);
  EXPECT_ANY_THROW(run(path, module, {at::ones({1}), 3}));
  EXPECT_ANY_THROW(run(path, module, {at::ones({1}), 8}));
}

TEST_F(RecordPath, SizesStayValuesOfTheGraph) {
  const auto module = define(R"(
def forward(self, x):
    b, n = x.size(0), x.size(1)
    y = x.reshape(b * n)
    return y if y.size(0) > 0 else x
)");
  const auto path = record(module, {at::randn({2, 3})});
  EXPECT_EQ(run(path, module, {at::randn({4, 5})}).toTensor().sizes(), at::IntArrayRef({20}));
}

TEST_F(RecordPath, DictsAndListsAreTakenApart) {
  const auto module = define(R"(
def forward(self, x):
    d = {"a": x, "b": x + 1}
    d["c"] = d["a"] * d["b"]
    total = torch.zeros_like(x)
    for key, value in d.items():
        if key != "b":
            total = total + value
    parts = [d.pop("a"), total]
    parts.insert(0, parts[-1])
    parts.extend([x])
    return torch.cat(parts[1:3]), len(d)
)");
  const auto path = record(module, {at::randn({2})});
  EXPECT_THAT(find_nodes(*path.graph, "prim::DictConstruct"), IsEmpty());
  EXPECT_THAT(find_nodes(*path.graph, "prim::Loop"), IsEmpty());
  const auto x = at::randn({2});
  const auto result = run(path, module, {x}).toTuple();
  EXPECT_TRUE(
      result->elements()[0].toTensor().equal(at::cat({x, at::zeros_like(x) + x + x * (x + 1)})));
  EXPECT_EQ(result->elements()[1].toInt(), 2);
}

TEST_F(RecordPath, AContainerThatMayBeMissingIsRead) {
  const auto module = define(R"(
def forward(self, x, targets: Optional[List[Dict[str, Tensor]]] = None):
    if targets is not None:
        for target in targets:
            x = x * target["weight"].size(0) + target["weight"].sum()
    return x
)");
  c10::impl::GenericDict target(c10::StringType::get(), c10::TensorType::get());
  target.insert("weight", at::randn({2}));
  c10::impl::GenericList targets(
      c10::DictType::create(c10::StringType::get(), c10::TensorType::get()));
  targets.push_back(target);
  const auto x = at::randn({3});
  const std::vector<c10::IValue> inputs{x, targets};
  const auto path = record(module, inputs);
  EXPECT_NO_THROW(PathGuard guard(path));
  auto copy = module;
  EXPECT_TRUE(
      test::bitwise_equal(run(path, module, inputs).toTensor(), copy.forward(inputs).toTensor()));
}

TEST_F(RecordPath, OneListUnderTwoNamesIsOneList) {
  const auto module = define(R"(
def forward(self, x):
    a = [x]
    b = a
    nested = [a]
    b.append(x + 1)
    nested[0].append(x + 2)
    return a, nested
)");
  const auto path = record(module, {at::randn({2})});
  const auto result = run(path, module, {at::randn({2})}).toTuple();
  EXPECT_THAT(result->elements()[0].toTensorVector(), SizeIs(3));
  EXPECT_TRUE(result->elements()[1].toList().get(0).is(result->elements()[0]));
}

TEST_F(RecordPath, ChangesOfTheCallersContainersComeLast) {
  const auto module = define(R"(
def forward(self, d: Dict[str, Tensor], l: List[Tensor]):
    d["y"] = d["x"] * 2
    l.append(d["y"] + l[0])
    d["x"] = l[-1]
    return d["x"]
)");
  const auto dict = [] {
    c10::Dict<std::string, at::Tensor> d;
    d.insert("x", at::ones({1}));
    return d;
  };
  const auto list = [] { return c10::List<at::Tensor>({at::ones({1})}); };
  const auto given = dict();
  const auto path = record(module, {given, list()});
  EXPECT_EQ(given.size(), 1);  // recording leaves no effects
  EXPECT_TRUE(path.has_changes);
  const auto d = dict();
  const auto l = list();
  EXPECT_EQ(run(path, module, {d, l}).toTensor().item<float>(), 3);
  EXPECT_EQ(d.at("y").item<float>(), 2);
  EXPECT_EQ(d.at("x").item<float>(), 3);
  EXPECT_EQ(l.size(), 2);
}

TEST_F(RecordPath, ACarriedAttributeIsAValueThatIsWrittenBackAtTheEnd) {
  const auto module = define(R"(
def forward(self, x):
    row = self.count[0:1]
    self.count.add_(1)
    y = x * self.count
    self.count.mul_(x)
    return y, row, self.count
)");
  const auto count = module.attr("count").toTensor();
  const auto version = count._version();
  const auto path = record(module, {at::full({1}, 2)}, {}, {{"count"}});
  EXPECT_EQ(count.item<float>(), 0);
  EXPECT_EQ(count._version(), version);
  EXPECT_TRUE(path.has_changes);
  ASSERT_THAT(path.apart.written, SizeIs(1));
  EXPECT_THAT(path.apart.read, IsEmpty());
  for (const auto* name : {"aten::add_", "aten::mul_"})
    EXPECT_THAT(find_nodes(*path.graph, name), IsEmpty());
  EXPECT_TRUE(find_nodes(*path.graph, "aten::clone").at(0)->hasAttribute(symbols::kBeforeRegions));

  const auto results = run(path, module, {at::full({1}, 3)}).toTupleRef().elements().vec();
  EXPECT_EQ(results[0].toTensor().item<float>(), 3);
  EXPECT_EQ(count.item<float>(), 3);
  EXPECT_EQ(count._version(), version + 2);
  EXPECT_TRUE(results[1].toTensor().is_alias_of(count));
  EXPECT_TRUE(results[2].toTensor().is_same(count));
}

TEST_F(RecordPath, MemoryThatIsReadUnderTwoNamesIsNotCarried) {
  const auto module = define(R"(
def forward(self, x, other):
    self.count.add_(1)
    return x * self.count + other
)");
  const auto x = at::ones({1});
  const auto count = module.attr("count").toTensor();
  const auto path = record(module, {x, x}, {}, {{"count"}});
  EXPECT_TRUE(are_apart(path.apart, module._ivalue(), {x, x}));
  EXPECT_FALSE(are_apart(path.apart, module._ivalue(), {x, count}));
  EXPECT_FALSE(are_apart(path.apart, module._ivalue(), {x, c10::List<at::Tensor>({count[0]})}));
  EXPECT_THROW(record(module, {x, count}, {}, {{"count"}}), NotRecordable);
  count.requires_grad_();
  EXPECT_FALSE(are_apart(path.apart, module._ivalue(), {x, x}));
}

TEST_F(RecordPath, RecordingLeavesTensorsAndRandomNumbersAlone) {
  const auto module = define(R"(
def forward(self, x):
    self.count.add_(1)
    x = torch.dropout(x, 0.5, True)
    if self.count.size(0) > 1:
        x = x * 2
    return x
)");
  const auto count = module.attr("count").toTensor();
  const auto version = count._version();
  const auto generator = at::detail::getDefaultCPUGenerator();
  const auto state = generator.get_state();
  record(module, {at::ones({4})});
  EXPECT_EQ(count.item<float>(), 0);
  EXPECT_EQ(count._version(), version);
  EXPECT_TRUE(generator.get_state().equal(state));
}

TEST_F(RecordPath, AttributesThatDecideAreAssumed) {
  const auto module = define(R"(
def forward(self, x):
    if self.training:
        return x * 2
    return x
)");
  const auto path = record(module, {at::ones({1})});
  ASSERT_THAT(path.attributes, SizeIs(1));
  EXPECT_THAT(find_nodes(*path.graph, "aten_recompute::check_path"), IsEmpty());
}

TEST_F(RecordPath, ChecksThatRaiseStay) {
  const auto module = define(R"(
def forward(self, x):
    if x.size(0) != 3:
        assert False, "expected 3 rows"
    return x if x.size(1) == 1 else x * 2
)");
  const auto path = record(module, {at::ones({3, 2})});
  EXPECT_THAT(find_nodes(*path.graph, "prim::If"), SizeIs(1));
  try {
    run(path, module, {at::ones({4, 2})});
    ADD_FAILURE();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected 3 rows"));
  }
}

TEST_F(RecordPath, WhatCannotBeRecordedIsNamed) {
  const auto raises = define(R"(
def forward(self, x):
    if x.size(0) > 1:
        assert False, "too long"
    return x
)");
  EXPECT_EQ(reason_of(raises, {at::ones({2})}), "this call raises an exception");
  const auto asks = define(R"(
def forward(self, x):
    return x * 2 if x.is_leaf else x
)");
  EXPECT_THAT(reason_of(asks, {at::ones({2})}), HasSubstr("is_leaf"));
  const auto two = define(R"(
def forward(self, a: List[Tensor], b: List[Tensor]):
    a.append(b[0])
    return b[-1]
)");
  const auto list = c10::List<at::Tensor>({at::ones({1})});
  EXPECT_THAT(reason_of(two, {list, list}), HasSubstr("share a list"));
}

}  // namespace
}  // namespace aten_recompute
