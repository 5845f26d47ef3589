#include "tests/cpp/support/testing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/torch.h>

#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute::test {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

class Lister {
 public:
  std::string line(const Node* node) {
    std::ostringstream text;
    const char* separator = "";
    for (const auto* output : node->outputs()) {
      text << separator << name(output);
      separator = ", ";
    }
    if (!node->outputs().empty()) {
      text << " = ";
    }
    text << node->kind().toQualString() << "(";
    separator = "";
    for (const auto* input : node->inputs()) {
      text << separator << operand(input);
      separator = ", ";
    }
    text << ")";
    return text.str();
  }

 private:
  std::string operand(const Value* value) {
    if (value->node()->kind() == c10::prim::Constant) {
      std::ostringstream text;
      text << torch::jit::toIValue(value).value();
      return text.str();
    }
    return name(value);
  }

  std::string name(const Value* value) {
    if (value->hasDebugName()) {
      return value->debugName();
    }
    return "$" + std::to_string(unnamed_.emplace(value, unnamed_.size()).first->second);
  }

  std::unordered_map<const Value*, size_t> unnamed_;
};

std::vector<std::string> list_range(const Node* begin, const Node* end) {
  Lister lister;
  std::vector<std::string> lines;
  for (const auto* node = begin; node != end; node = node->next()) {
    if (node->kind() != c10::prim::Constant) {
      lines.push_back(lister.line(node));
    }
  }
  return lines;
}

// Marks every tensor of the forward.
void mark_requires_grad(JointGraph& joint) {
  auto mark = [&](const Value* value) {
    if (is_tensor_type(*value->type())) {
      joint.requires_grad.insert(value->unique());
    }
  };
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    mark(joint.graph->inputs()[i]);
  }
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start) {
      return;
    }
    for (auto* output : node->outputs()) {
      mark(output);
    }
  }
}

}  // namespace

TorchTest::TorchTest()
    : random_state_(at::detail::getDefaultCPUGenerator().get_state()),
      grad_mode_(at::GradMode::is_enabled()),
      optimize_(torch::jit::getGraphExecutorOptimize()) {
  env_.unset("RECOMPUTE");
  torch::manual_seed(20);
  at::GradMode::set_enabled(true);
  torch::jit::setGraphExecutorOptimize(false);
}

TorchTest::~TorchTest() {
  torch::jit::setGraphExecutorOptimize(optimize_);
  at::GradMode::set_enabled(grad_mode_);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(random_state_);
}

std::shared_ptr<Graph> parse(const std::string& ir) {
  auto graph = std::make_shared<Graph>();
  std::unordered_map<std::string, Value*> values;
  torch::jit::parseIR(ir, graph.get(), values);
  for (const auto& [name, value] : values) {
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      value->setDebugName(name);
    }
  }
  graph->lint();
  return graph;
}

std::vector<std::string> listing(const Block& block) {
  auto& mutable_block = const_cast<Block&>(block);
  return list_range(mutable_block.param_node()->next(), mutable_block.return_node());
}

std::vector<std::string> listing(const Graph& graph) {
  return listing(*const_cast<Graph&>(graph).block());
}

std::vector<std::string> forward_listing(const JointGraph& joint) {
  return list_range(joint.graph->block()->param_node()->next(), joint.backward_start);
}

std::vector<std::string> backward_listing(const JointGraph& joint) {
  return list_range(joint.backward_start->next(), joint.graph->return_node());
}

std::vector<std::string> names(c10::ArrayRef<const Value*> values) {
  std::vector<std::string> result;
  for (const auto* value : values) {
    result.push_back(value->debugName());
  }
  return result;
}

std::vector<std::string> names(c10::ArrayRef<Value*> values) {
  return names(std::vector<const Value*>(values.begin(), values.end()));
}

Value* find_value(const Graph& graph, const std::string& name) {
  auto& g = const_cast<Graph&>(graph);
  for (auto* input : g.inputs()) {
    if (input->debugName() == name) {
      return input;
    }
  }
  for (auto* node : g.nodes()) {
    for (auto* output : node->outputs()) {
      if (output->debugName() == name) {
        return output;
      }
    }
  }
  throw std::out_of_range("no value %" + name + " in\n" + graph.toString());
}

std::vector<Node*> find_nodes(const Graph& graph, const std::string& kind) {
  return torch::jit::findAllNodes(const_cast<Graph&>(graph), c10::Symbol::fromQualString(kind),
                                  /*recurse=*/true);
}

std::vector<c10::IValue> run_graph(const std::shared_ptr<Graph>& graph,
                                   std::vector<c10::IValue> inputs) {
  const torch::jit::Code code(graph, "test");
  torch::jit::InterpreterState(code).run(inputs);
  return inputs;
}

JointGraph parse_joint(JointShape shape, const std::string& ir) {
  JointGraph joint;
  joint.graph = parse(ir);
  joint.num_inputs = shape.num_inputs;
  joint.num_outputs = shape.num_outputs;
  for (auto* node : joint.graph->nodes()) {
    if (node->kind() == symbols::kBackwardStart) {
      joint.backward_start = node;
    }
  }
  if (joint.backward_start == nullptr) {
    joint.backward_start =
        joint.graph->appendNode(joint.graph->create(symbols::kBackwardStart, /*num_outputs=*/0));
  }
  joint.output_requires_grad.assign(shape.num_outputs, false);
  for (auto output : shape.vjp_outputs) {
    joint.output_requires_grad.at(output) = true;
  }
  mark_requires_grad(joint);
  joint.vjp_outputs = std::move(shape.vjp_outputs);
  joint.gradient_inputs = std::move(shape.gradient_inputs);
  return joint;
}

JointGraph parse_forward(const std::string& ir) {
  auto joint = parse_joint({}, ir);
  joint.num_inputs = joint.graph->inputs().size();
  joint.num_outputs = joint.graph->outputs().size();
  joint.output_requires_grad.assign(joint.num_outputs, true);
  mark_requires_grad(joint);
  return joint;
}

SavePlan plan_of(const JointGraph& joint, const std::vector<std::string>& saved) {
  SavePlan plan;
  for (const auto& name : saved) {
    plan.saved.insert(find_value(*joint.graph, name)->unique());
  }
  return plan;
}

std::vector<std::string> saved_names(const JointGraph& joint, const SavePlan& plan) {
  std::vector<std::string> result;
  for (auto* node : joint.graph->nodes()) {
    for (auto* output : node->outputs()) {
      if (plan.saved.count(output->unique()) != 0) {
        result.push_back(output->debugName());
      }
    }
  }
  return result;
}

torch::jit::Module make_module(const std::string& class_name) {
  static const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  torch::jit::Module module(c10::QualifiedName("__torch__." + class_name), unit,
                            /*shouldMangle=*/true);
  if (!module.hasattr("training")) {
    module.register_attribute("training", c10::BoolType::get(), true);
  }
  return module;
}

torch::jit::Module make_linear(int64_t inputs, int64_t outputs) {
  auto module = make_module("Linear");
  module.register_parameter("weight", at::randn({outputs, inputs}), /*is_buffer=*/false);
  module.register_parameter("bias", at::randn({outputs}), /*is_buffer=*/false);
  module.attr("weight").toTensor().requires_grad_();
  module.attr("bias").toTensor().requires_grad_();
  module.define(R"(
def forward(self, x):
    return torch.linear(x, self.weight, self.bias)
)");
  return module;
}

torch::jit::Module make_model() {
  auto model = make_module("Model");
  model.register_module("layer", make_linear(4, 4));
  model.define(R"(
def forward(self, x):
    h = torch.relu(self.layer.forward(x))
    return torch.relu(self.layer.forward(h)).sum()
)");
  return model;
}

torch::jit::Module make_two_layers(const std::string& source,
                                   const torch::jit::ResolverPtr& resolver) {
  at::manual_seed(1);
  auto model = make_module("Model");
  model.register_module("first", make_linear(4, 8));
  model.register_module("second", make_linear(8, 3));
  model.define(source, resolver);
  return model;
}

std::shared_ptr<Graph> method_graph(const torch::jit::Module& module, const std::string& method) {
  return torch::jit::toGraphFunction(module.get_method(method).function()).graph()->copy();
}

bool bitwise_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.scalar_type() == b.scalar_type() && at::equal(a, b);
}

}  // namespace aten_recompute::test
