#include "rules/script_source.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <stdexcept>

namespace aten_recompute {
namespace {

using torch::jit::BuiltinModule;
using torch::jit::GraphFunction;
using torch::jit::SourceRange;
using torch::jit::SugaredValue;

struct Namespaces : SugaredValue {
  std::string kind() const override { return "namespaces of operators"; }
  std::shared_ptr<SugaredValue> attr(const SourceRange& /*where*/, GraphFunction& /*function*/,
                                     const std::string& field) override {
    return std::make_shared<BuiltinModule>(field);
  }
};

struct Torch : BuiltinModule {
  Torch() : BuiltinModule("aten") {}
  std::shared_ptr<SugaredValue> attr(const SourceRange& where, GraphFunction& function,
                                     const std::string& field) override {
    if (field == "ops")
      return std::make_shared<Namespaces>();
    return BuiltinModule::attr(where, function, field);
  }
};

struct RuleResolver : torch::jit::Resolver {
  std::shared_ptr<SugaredValue> resolveValue(const std::string& name, GraphFunction& /*function*/,
                                             const SourceRange& /*where*/) override {
    if (name == "torch")
      return std::make_shared<Torch>();
    if (name == "ops")
      return std::make_shared<Namespaces>();
    if (name == "recompute")
      return std::make_shared<BuiltinModule>("aten_recompute");
    return nullptr;
  }
};

}  // namespace

std::shared_ptr<torch::jit::Resolver> script_resolver() {
  return std::make_shared<RuleResolver>();
}

std::shared_ptr<torch::jit::Graph> compile_script(const std::string& source) {
  torch::jit::CompilationUnit unit;
  const auto functions = unit.define(std::nullopt, source + "\n", script_resolver(), nullptr);
  if (functions.empty())
    throw std::invalid_argument("it defines no function");
  auto graph = torch::jit::toGraphFunction(*functions.back()).graph()->copy();
  torch::jit::Inline(*graph);
  return graph;
}

}  // namespace aten_recompute
