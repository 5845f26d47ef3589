#include "passes/frontend/rewrites/autocast_blocks.h"

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using ::testing::ElementsAre;
using torch::jit::Graph;

class AutocastBlocks : public test::TorchTest {};

// A method that enters an object of a class with these attributes, computes, and leaves it.
std::shared_ptr<Graph> method_with_block(const std::string& class_name,
                                         const std::vector<std::string>& attributes) {
  static const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto type = c10::ClassType::create("__torch__." + class_name, unit);
  for (const auto& attribute : attributes)
    type->addAttribute(attribute, c10::AnyType::get());
  auto graph = std::make_shared<Graph>();
  auto* object = graph->addInput("object")->setType(type);
  auto* x = graph->addInput("x");
  auto* entered = graph->insertNode(graph->create(c10::prim::Enter, {object}))->output();
  entered->setType(type);
  auto* y = graph->insert(c10::aten::relu, {x});
  graph->insertNode(graph->create(c10::prim::Exit, {object}))
      ->output()
      ->setType(c10::NoneType::get());
  graph->registerOutput(y->setDebugName("y"));
  return graph;
}

TEST_F(AutocastBlocks, EnteringAndLeavingBecomeOperators) {
  const auto graph = method_with_block("autocast", {"device", "_enabled", "fast_dtype"});
  autocast_blocks(*graph);
  graph->lint();
  EXPECT_THAT(listing(*graph),
              ElementsAre("device = prim::GetAttr(object)", "_enabled = prim::GetAttr(object)",
                          "fast_dtype = prim::GetAttr(object)",
                          "aten_recompute::enter_autocast(device, _enabled, fast_dtype, None)",
                          "y = aten::relu(x)", "aten_recompute::exit_autocast()"));
}

// A context that the method makes itself is not needed any more.
TEST_F(AutocastBlocks, WhatTheContextWasGivenIsPassedOn) {
  const auto graph = method_with_block("autocast", {"device", "_enabled", "fast_dtype"});
  auto* object = graph->inputs()[0];
  auto* made = graph->create(c10::prim::CreateObject)->insertBefore(*graph->nodes().begin());
  made->output()->setType(object->type());
  auto* last = made;
  for (const char* name : {"device", "_enabled", "fast_dtype"}) {
    auto* value = graph->addInput(std::string("given_") + name);
    auto* set = graph->create(c10::prim::SetAttr, {made->output(), value}, 0);
    last = set->s_(c10::attr::name, name)->insertAfter(last);
  }
  object->replaceAllUsesWith(made->output());
  autocast_blocks(*graph);
  graph->lint();
  EXPECT_THAT(
      listing(*graph),
      ElementsAre(
          "aten_recompute::enter_autocast(given_device, given__enabled, given_fast_dtype, None)",
          "y = aten::relu(x)", "aten_recompute::exit_autocast()"));
}

// TorchScript's compiled class has no attribute for the cache.
TEST_F(AutocastBlocks, WhetherTheCacheIsOnIsKept) {
  const auto graph = method_with_block("autocast", {"device", "_enabled", "fast_dtype"});
  auto* object = graph->inputs()[0];
  auto* made = graph->create(c10::prim::CreateObject)->insertBefore(*graph->nodes().begin());
  made->output()->setType(object->type());
  object->replaceAllUsesWith(made->output());
  auto* cache = graph->addInput("cache")->setType(c10::BoolType::get());
  auto* init = graph->create(c10::prim::CallMethod, {made->output(), cache})->insertAfter(made);
  const c10::FunctionSchema schema("__init__", "",
                                   {c10::Argument("self"), c10::Argument("cache_enabled")}, {});
  keep_cache_enabled(init, schema);
  init->destroy();
  autocast_blocks(*graph);
  graph->lint();
  EXPECT_THAT(listing(*graph), ::testing::Contains(::testing::HasSubstr("fast_dtype, cache)")));
}

TEST_F(AutocastBlocks, OtherContextManagersAreLeftAlone) {
  const auto graph = method_with_block("no_grad", {"device", "_enabled", "fast_dtype"});
  const auto before = graph->toString();
  autocast_blocks(*graph);
  EXPECT_EQ(graph->toString(), before);
}

TEST_F(AutocastBlocks, AnotherClassOfThatNameIsLeftAlone) {
  const auto graph = method_with_block("autocast", {"device"});
  const auto before = graph->toString();
  autocast_blocks(*graph);
  EXPECT_EQ(graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
