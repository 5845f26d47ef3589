#include "passes/frontend/path/given_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class GivenValues : public ::testing::Test {
 protected:
  const torch::jit::Value* value(const std::string& name) const {
    return test::find_value(*graph_, name);
  }

  bool may_become_none(const std::string& name) const {
    Item item;
    item.symbol = test::find_value(*graph_, name);
    return aten_recompute::may_become_none(item);
  }

  std::shared_ptr<torch::jit::Graph> graph_ = test::parse(R"(
graph(%self, %list : Tensor[], %maybe : Tensor?, %numbers : Dict(str, int)):
  %zero : int = prim::Constant[value=0]()
  %key : str = prim::Constant[value="a"]()
  %element : Tensor = aten::__getitem__(%list, %zero)
  %weight : Tensor = prim::GetAttr[name="weight"](%self)
  %made : Tensor = aten::relu(%element)
  %number : int? = aten::get(%numbers, %key)
  return (%made)
)");
};

TEST_F(GivenValues, ElementsAreGivenWithTheirContainer) {
  EXPECT_TRUE(is_read_of_input(value("list")));
  EXPECT_TRUE(is_read_of_input(value("element")));
  EXPECT_FALSE(is_read_of_input(value("weight")));
  EXPECT_TRUE(is_given(value("weight")));
  EXPECT_TRUE(is_given(value("element")));
  EXPECT_FALSE(is_given(value("made")));
}

TEST_F(GivenValues, OnlyAnOperatorMayReturnNoneInAnotherCall) {
  EXPECT_FALSE(may_become_none("maybe"));
  EXPECT_FALSE(may_become_none("made"));
  EXPECT_TRUE(may_become_none("number"));
  EXPECT_FALSE(aten_recompute::may_become_none(constant_item({}, c10::NoneType::get())));
}

}  // namespace
}  // namespace aten_recompute
