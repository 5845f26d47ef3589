#include "passes/frontend/path/path_attributes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/not_recordable.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;

// A module with the attributes count : int = 2, table : Tensor and maybe : Optional[Tensor].
class PathAttributesTest : public test::TorchTest {
 protected:
  PathAttributesTest() {
    module_.register_attribute("count", c10::IntType::get(), 2);
    module_.register_buffer("table", at::ones({3}));
    module_.register_attribute("maybe", c10::OptionalType::ofTensor(), at::ones({1}));
    self_.value = module_._ivalue();
    self_.symbol = builder_.graph()->addInput("self")->setType(module_.type());
  }

  Item& get(PathAttributes& attributes, const std::string& name) {
    return attributes.get(self_, name, module_.type()->getAttribute(name));
  }

  Module module_ = test::make_module("M");
  PathBuilder builder_;
  CallerWrites writes_;
  Item self_;
};

TEST_F(PathAttributesTest, ANumberIsAConstantThatThePathDependsOn) {
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  EXPECT_TRUE(get(attributes, "count").is_constant());
  get(attributes, "count");  // the second read adds nothing
  ASSERT_THAT(attributes.required(), SizeIs(1));
  EXPECT_THAT(attributes.required()[0].path, ElementsAre("count"));
  EXPECT_EQ(attributes.required()[0].value.toInt(), 2);
}

TEST_F(PathAttributesTest, ANumberThatTheMethodSetsIsReadInEachCall) {
  auto setter = module_;
  setter.define("def forward(self):\n    self.count = 3\n");
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  attributes.add_set_names(*test::method_graph(setter));
  EXPECT_FALSE(get(attributes, "count").is_constant());
  for (const auto& required : attributes.required())
    EXPECT_TRUE(required.value.isNone());
}

TEST_F(PathAttributesTest, TypesOfTensorsMatterOnceTheyAreAskedFor) {
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  EXPECT_TRUE(writes_.is_own(module_.attr("table").toTensor()));
  EXPECT_FALSE(get(attributes, "table").is_constant());
  EXPECT_TRUE(writes_.is_callers(module_.attr("table").toTensor()));
  EXPECT_THAT(attributes.required(), IsEmpty());
  attributes.require_types();
  attributes.require_types();
  ASSERT_THAT(attributes.required(), SizeIs(1));
  EXPECT_NE(attributes.required()[0].structure, nullptr);
}

TEST_F(PathAttributesTest, AnOptionalTensorMustStayATensor) {
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  get(attributes, "maybe");
  ASSERT_THAT(attributes.required(), SizeIs(1));
  EXPECT_TRUE(attributes.required()[0].not_none);
}

TEST_F(PathAttributesTest, WhatWasSetIsReadAndChangedLast) {
  const auto graph = test::parse(R"(
graph(%self, %n : int):
  prim::SetAttr[name="count"](%self, %n)
  return (%n)
)");
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  attributes.set(test::find_nodes(*graph, "prim::SetAttr").at(0), self_,
                 constant_item(5, c10::IntType::get()));
  EXPECT_EQ(get(attributes, "count").value.toInt(), 5);
  EXPECT_EQ(module_.attr("count").toInt(), 2);
  EXPECT_TRUE(writes_.has_changes());
  EXPECT_THAT(attributes.required(), IsEmpty());
}

// The path could not depend on the length of such a list.
TEST_F(PathAttributesTest, AListOfAnotherObjectIsNotRead) {
  auto other = test::make_module("Other");
  other.register_attribute("sizes", c10::ListType::ofInts(), c10::List<int64_t>({1}));
  Item object;
  object.value = other._ivalue();
  object.symbol = builder_.graph()->addInput("other")->setType(other.type());
  PathAttributes attributes(module_._ivalue(), builder_, writes_);
  EXPECT_THROW(attributes.get(object, "sizes", c10::ListType::ofInts()), NotRecordable);
  EXPECT_THROW(
      attributes.get(constant_item(1, c10::IntType::get()), "sizes", c10::ListType::ofInts()),
      NotRecordable);
}

}  // namespace
}  // namespace aten_recompute
