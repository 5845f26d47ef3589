#include "passes/frontend/path/path_operators.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/not_recordable.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;
using torch::jit::Node;

// A method's graph whose nodes are run one by one.
class PathOperatorsTest : public test::TorchTest {
 protected:
  void set_method(const std::string& ir) { method_ = test::parse(ir); }

  // Sets an input of the method to what the call gives.
  void give(size_t input, const c10::IValue& value) {
    auto* of_method = method_->inputs()[input];
    auto* symbol = builder_.graph()->addInput(of_method->debugName())->setType(of_method->type());
    writes_.add_given(value);
    values_.set(of_method, make_item(value, symbol, symbol->type(), /*is_callers=*/true));
  }

  Node* node(const std::string& kind) { return test::find_nodes(*method_, kind).at(0); }

  void run(const std::string& kind) {
    std::vector<Item> operands;
    for (const auto* input : node(kind)->inputs())
      operands.push_back(values_.get(input));
    operators_.run(node(kind), operands);
  }

  void set_constant(const std::string& name, const c10::IValue& value) {
    values_.set(test::find_value(*method_, name), constant_item(value, value.type()));
  }

  std::shared_ptr<Graph> method_;
  PathBuilder builder_;
  PathValues values_;
  CallerWrites writes_;
  PathAttributes attributes_{test::make_module("M")._ivalue(), builder_, writes_};
  PathGradients gradients_{builder_, values_};
  PathOperators operators_{builder_, values_, attributes_, writes_, gradients_};
};

TEST_F(PathOperatorsTest, WhatFollowsFromConstantsIsAConstant) {
  set_method(R"(
graph(%a : int, %b : int):
  %sum : int = aten::add(%a, %b)
  return (%sum)
)");
  set_constant("a", 2);
  set_constant("b", 3);
  run("aten::add");
  const auto& sum = values_.get(method_->outputs()[0]);
  EXPECT_TRUE(sum.is_constant());
  EXPECT_EQ(sum.value.toInt(), 5);
  EXPECT_THAT(test::listing(*builder_.graph()), IsEmpty());
}

TEST_F(PathOperatorsTest, TheRankIsAConstantAndASizeIsNot) {
  set_method(R"(
graph(%x : Tensor):
  %rank : int = aten::dim(%x)
  %sizes : int[] = aten::size(%x)
  return (%rank, %sizes)
)");
  give(0, at::ones({2, 3}));
  run("aten::dim");
  run("aten::size");
  EXPECT_TRUE(values_.get(method_->outputs()[0]).is_constant());
  const auto& sizes = *values_.get(method_->outputs()[1]).container;
  EXPECT_THAT(sizes.items, SizeIs(2));
  EXPECT_TRUE(sizes.has_determined_size);
  EXPECT_THAT(test::listing(*builder_.graph()), ElementsAre("sizes = aten::size(x)"));
}

TEST_F(PathOperatorsTest, AWriteToATensorOfThePathIsFunctional) {
  set_method(R"(
graph(%x : Tensor, %n : int):
  %y : Tensor = aten::relu(%x)
  %written : Tensor = aten::add_(%y, %x, %n)
  return (%written)
)");
  const auto x = at::ones({2});
  give(0, x);
  set_constant("n", 1);
  run("aten::relu");
  run("aten::add_");
  EXPECT_TRUE(values_.get(method_->outputs()[0]).value.toTensor().equal(at::full({2}, 2)));
  EXPECT_THAT(test::find_nodes(*builder_.graph(), "aten::add"), SizeIs(1));
  EXPECT_THAT(test::find_nodes(*builder_.graph(), "aten::add_"), IsEmpty());
}

TEST_F(PathOperatorsTest, AWriteToTheCallersTensorStays) {
  set_method(R"(
graph(%x : Tensor, %n : int):
  %written : Tensor = aten::add_(%x, %n, %n)
  return (%written)
)");
  give(0, at::ones({2}));
  set_constant("n", 1);
  run("aten::add_");
  EXPECT_THAT(test::find_nodes(*builder_.graph(), "aten::add_"), SizeIs(1));
}

// contiguous() copies in this call. In another it may return what the caller gave.
TEST_F(PathOperatorsTest, AWriteToWhatMayBeTheCallersIsNotRecorded) {
  set_method(R"(
graph(%x : Tensor, %n : int):
  %y : Tensor = aten::contiguous(%x, %n)
  %written : Tensor = aten::add_(%y, %n, %n)
  return (%written)
)");
  give(0, at::ones({2, 3}).t());
  set_constant("n", 0);
  run("aten::contiguous");
  EXPECT_THROW(run("aten::add_"), NotRecordable);
}

TEST_F(PathOperatorsTest, WhatRaisesInThisCallIsNotRecorded) {
  set_method(R"(
graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten::mm(%x, %y)
  return (%z)
)");
  give(0, at::ones({2, 3}));
  give(1, at::ones({2, 3}));
  EXPECT_THROW(run("aten::mm"), NotRecordable);
}

bool with_gradients() {
  return true;
}

TEST_F(PathOperatorsTest, RequiresGradOfAnInputComesFirst) {
  set_method(R"(
graph(%x : Tensor, %yes : bool):
  %y : Tensor = aten::relu(%x)
  %leaf : Tensor = aten::requires_grad_(%x, %yes)
  %own : Tensor = aten::requires_grad_(%y, %yes)
  return (%leaf)
)");
  give(0, at::ones({2}));
  set_constant("yes", true);
  run("aten::relu");
  const auto nodes = test::find_nodes(*method_, "aten::requires_grad_");
  EXPECT_TRUE(operators_.run_requires_grad(nodes[0], with_gradients));
  EXPECT_TRUE(operators_.run_requires_grad(nodes[1], with_gradients));
  EXPECT_TRUE(writes_.has_changes());
  // What has read the input before has no gradient, if the input has none.
  EXPECT_THAT(test::listing(*builder_.graph()),
              ElementsAre(HasSubstr("prim::requires_grad(x)"), HasSubstr("aten::detach(x)"),
                          "leaf = aten::requires_grad_(x, True)", HasSubstr("aten::relu("),
                          HasSubstr("aten_recompute::check_path"),
                          HasSubstr("aten_recompute::require_grad(y)")));
}

class MarkedConversionTest : public PathOperatorsTest {
 protected:
  // Marks the conversion of a float tensor to the type as a leaf. Returns the path.
  std::vector<std::string> mark(at::ScalarType type) {
    set_method(R"(
graph(%x : Tensor, %no : bool, %yes : bool, %none : NoneType, %type : int):
  %y : Tensor = aten::to(%x, %type, %no, %no, %none)
  %leaf : Tensor = aten::requires_grad_(%y, %yes)
  return (%leaf)
)");
    give(0, at::ones({2}));
    set_constant("no", false);
    set_constant("yes", true);
    set_constant("none", c10::IValue());
    set_constant("type", static_cast<int64_t>(type));
    run("aten::to");
    const auto nodes = test::find_nodes(*method_, "aten::requires_grad_");
    EXPECT_TRUE(operators_.run_requires_grad(nodes[0], with_gradients));
    return test::listing(*builder_.graph());
  }
};

TEST_F(MarkedConversionTest, ALeafOfAConversionIsTheOperandItself) {
  EXPECT_EQ(mark(at::kFloat).at(0), "leaf = aten::requires_grad_(x, True)");
}

TEST_F(MarkedConversionTest, AConversionThatCopiesIsALeafOfThePath) {
  EXPECT_THAT(mark(at::kDouble).back(), HasSubstr("aten_recompute::require_grad(y)"));
}

class KeepCheckTest : public PathOperatorsTest {
 protected:
  // Returns whether an `if` on a size that is 2, with this node in its first block, is kept.
  bool keep(const std::string& body, const std::string& compare) {
    set_method(R"(
graph(%x : Tensor, %n : int, %message : str):
  %none : NoneType = prim::Constant()
  %yes : bool = prim::Constant[value=1]()
  %size : int = aten::size(%x, %n)
  %holds : bool = )" +
               compare + R"((%size, %n)
  prim::If(%holds)
    block0():
)" + body + R"(
      -> ()
    block1():
      -> ()
  return (%x)
)");
    give(0, at::ones({2}));
    set_constant("n", 0);
    set_constant("message", "wrong");
    values_.set(test::find_value(*method_, "none"), constant_item({}, c10::NoneType::get()));
    set_constant("yes", true);
    run("aten::size");
    run(compare);
    return operators_.keep_check(node("prim::If"));
  }
};

TEST_F(KeepCheckTest, ACheckThatHoldsIsKept) {
  EXPECT_TRUE(keep("      prim::RaiseException(%message, %none)", "aten::le"));
  EXPECT_THAT(test::find_nodes(*builder_.graph(), "prim::If"), SizeIs(1));
}

TEST_F(KeepCheckTest, ACheckThatRaisesInThisCallIsNotRecorded) {
  EXPECT_THROW(keep("      prim::RaiseException(%message, %none)", "aten::gt"), NotRecordable);
}

TEST_F(KeepCheckTest, AnIfThatDoesMoreIsDecided) {
  EXPECT_FALSE(keep("      %y : Tensor = aten::relu(%x)", "aten::gt"));
  EXPECT_THAT(test::find_nodes(*builder_.graph(), "prim::If"), IsEmpty());
}

TEST_F(KeepCheckTest, ALoopInACheckIsDecided) {
  EXPECT_FALSE(keep(R"(
      prim::Loop(%n, %yes)
        block0(%i : int):
          prim::RaiseException(%message, %none)
          -> (%yes)
)",
                    "aten::gt"));
}

}  // namespace
}  // namespace aten_recompute
