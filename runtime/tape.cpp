#include "runtime/tape.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <unordered_set>

#include "ir/symbols.h"
#include "runtime/autograd_modes.h"
#include "runtime/tape_reach.h"

namespace aten_recompute {
namespace {

using torch::jit::Stack;

// The end of the tape's graph. It holds no tensor, so the operator's inputs are kept alive only if
// autograd itself saves them.
struct TapeEnd : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    return {};
  }
  std::string name() const override { return "AtenRecomputeTapeEnd"; }
};

bool can_require_grad(const at::Tensor& tensor) {
  return tensor.defined() &&
         (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

class TapeForward {
 public:
  explicit TapeForward(const torch::jit::Node* node)
      : code_(std::make_shared<torch::jit::Code>(node->g(c10::attr::Subgraph), "tape")),
        requires_grad_(node->is(symbols::kRequiresGrad)),
        number_(node->hasAttribute(kTapeNumber) ? node->i(kTapeNumber) : -1) {}

  void operator()(Stack& stack) const {
    const auto count = requires_grad_.size();
    Stack inputs(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(count)),
                 std::make_move_iterator(stack.end()));
    torch::jit::drop(stack, count);
    auto tape = c10::make_intrusive<Tape>();
    tape->inputs_end = make_node<TapeEnd>();
    {
      const OrdinaryAutograd guard;
      for (size_t i = 0; i < count; ++i) {
        if (requires_grad_[i] != 0)
          attach(inputs[i], *tape);
      }
      torch::jit::InterpreterState(*code_).run(inputs);
      // Outputs are detached under autograd, where detach() shares the version counter. If an
      // output is changed later, autograd notices that its saved values are outdated.
      for (auto& output : inputs)
        stack.push_back(detach_output(output, *tape));
    }
    if (auto* reach = TapeReach::current(); reach != nullptr && number_ >= 0)
      report(*tape, *reach);
    stack.emplace_back(std::move(tape));
  }

 private:
  // Replaces a tensor (or each tensor of a list) by one whose gradient goes to the tape's end.
  static void attach(c10::IValue& value, Tape& tape) {
    size_t added = 0;
    auto attach_one = [&](const at::Tensor& tensor) {
      if (!can_require_grad(tensor))
        return tensor;
      auto detached = tensor.detach();
      torch::autograd::impl::set_gradient_edge(
          detached, {tape.inputs_end, tape.inputs_end->add_input_metadata(detached)});
      tape.inputs.push_back({tensor.sizes().vec(), tensor.options()});
      ++added;
      return detached;
    };
    if (value.isTensor()) {
      value = attach_one(value.toTensor());
    } else if (value.isList()) {
      auto list = value.toList();
      c10::impl::GenericList attached(list.elementType());
      for (size_t i = 0; i < list.size(); ++i) {
        const auto& element = list.get(i);
        attached.push_back(element.isTensor() ? c10::IValue(attach_one(element.toTensor()))
                                              : element);
      }
      value = c10::IValue(attached);
    }
    tape.group_sizes.push_back(added);
  }

  static c10::IValue detach_output(c10::IValue& value, Tape& tape) {
    auto detach_one = [&](const at::Tensor& tensor) {
      const bool differentiable = tensor.defined() && tensor.requires_grad();
      tape.output_edges.push_back(differentiable ? torch::autograd::impl::gradient_edge(tensor)
                                                 : torch::autograd::Edge());
      return tensor.defined() ? tensor.detach() : tensor;
    };
    if (value.isTensor()) {
      tape.output_sizes.push_back(1);
      return detach_one(value.toTensor());
    }
    if (value.isTensorList()) {
      tape.output_sizes.push_back(value.toListRef().size());
      c10::List<at::Tensor> detached;
      for (const at::Tensor& tensor : value.toTensorVector())
        detached.push_back(detach_one(tensor));
      return detached;
    }
    tape.output_sizes.push_back(0);
    return value;
  }

  // Tells which operands the gradient of each result reaches.
  void report(const Tape& tape, TapeReach& reach) const {
    std::vector<size_t> operand_of;  // per input of the tape
    size_t group = 0;
    for (size_t operand = 0; operand < requires_grad_.size(); ++operand) {
      if (requires_grad_[operand] != 0)
        operand_of.insert(operand_of.end(), tape.group_sizes[group++], operand);
    }
    size_t edge = 0;
    for (size_t output = 0; output < tape.output_sizes.size(); ++output) {
      const std::vector<torch::autograd::Edge> edges(
          tape.output_edges.begin() + static_cast<std::ptrdiff_t>(edge),
          tape.output_edges.begin() +
              static_cast<std::ptrdiff_t>(edge + tape.output_sizes[output]));
      edge += tape.output_sizes[output];
      for (auto input : inputs_reached(edges, tape))
        reach.note(static_cast<size_t>(number_), output, operand_of[input]);
    }
  }

  // Returns the inputs of the tape that gradients which begin at `edges` reach.
  static std::vector<size_t> inputs_reached(std::vector<torch::autograd::Edge> edges,
                                            const Tape& tape) {
    std::vector<size_t> inputs;
    std::unordered_set<const torch::autograd::Node*> seen;
    while (!edges.empty()) {
      const auto edge = edges.back();
      edges.pop_back();
      if (!edge.is_valid())
        continue;
      if (edge.function == tape.inputs_end)
        inputs.push_back(edge.input_nr);
      else if (seen.insert(edge.function.get()).second)
        edges.insert(edges.end(), edge.function->next_edges().begin(),
                     edge.function->next_edges().end());
    }
    return inputs;
  }

  std::shared_ptr<torch::jit::Code> code_;
  std::vector<int64_t> requires_grad_;
  int64_t number_;
};

// Stack: (tape, gradient of each output or None) -> gradients of the inputs that require grad.
void tape_backward(Stack& stack, size_t num_outputs, const std::vector<bool>& list_outputs,
                   const std::vector<bool>& may_be_undefined) {
  const auto gradients = torch::jit::pop(stack, num_outputs);
  const auto tape = torch::jit::pop(stack).toCustomClass<Tape>();
  torch::autograd::edge_list roots;
  torch::autograd::variable_list root_gradients;
  auto add_root = [&](size_t edge, const c10::IValue& gradient) {
    if (!gradient.isTensor() || !gradient.toTensor().defined())
      return;
    if (!tape->output_edges[edge].is_valid())
      return;
    roots.push_back(tape->output_edges[edge]);
    root_gradients.push_back(gradient.toTensor());
  };
  size_t edge = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].isList()) {
      auto elements = gradients[i].toList();
      for (size_t k = 0; k < elements.size(); ++k)
        add_root(edge + k, elements.get(k));
    } else if (tape->output_sizes[i] == 1) {
      add_root(edge, gradients[i]);
    }
    edge += tape->output_sizes[i];
  }
  torch::autograd::variable_list results(tape->inputs.size());
  if (!roots.empty() && !results.empty()) {
    torch::autograd::edge_list ends;
    for (uint32_t i = 0; i < tape->inputs.size(); ++i)
      ends.emplace_back(tape->inputs_end, i);
    const OrdinaryAutograd guard;
    results = torch::autograd::Engine::get_default_engine().execute(
        roots, root_gradients, torch::autograd::get_current_graph_task_keep_graph(),
        /*create_graph=*/false, /*accumulate_grad=*/false, ends);
  }
  // An undefined gradient becomes zeros, because gradient formulas may compute with it.
  auto result_or_zero = [&](size_t i) {
    return results[i].defined() ? std::move(results[i])
                                : at::zeros(tape->inputs[i].sizes, tape->inputs[i].options);
  };
  size_t next = 0;
  for (size_t group = 0; group < tape->group_sizes.size(); ++group) {
    if (list_outputs[group]) {
      c10::List<at::Tensor> list;
      for (size_t i = 0; i < tape->group_sizes[group]; ++i)
        list.push_back(result_or_zero(next++));
      stack.emplace_back(std::move(list));
    } else if (tape->group_sizes[group] == 0) {
      stack.push_back(may_be_undefined[group] ? c10::IValue() : c10::IValue(at::Tensor()));
    } else {
      const auto i = next++;
      const bool undefined = may_be_undefined[group] && !results[i].defined();
      stack.push_back(undefined ? c10::IValue() : c10::IValue(result_or_zero(i)));
    }
  }
}

}  // namespace

void register_tape_operators() {
  using torch::jit::Node;
  using torch::jit::Operation;
  using torch::jit::Operator;
  static const torch::jit::RegisterOperators registered({
      Operator(
          symbols::kTapeForward, [](const Node* node) -> Operation { return TapeForward(node); },
          c10::AliasAnalysisKind::PURE_FUNCTION),
      Operator(
          symbols::kTapeBackward,
          [](const Node* node) -> Operation {
            std::vector<bool> lists;
            for (const auto* output : node->outputs())
              lists.push_back(output->type()->kind() == c10::TypeKind::ListType);
            std::vector<bool> may_be_undefined(node->outputs().size(), false);
            if (node->hasAttribute(symbols::kMayBeUndefined)) {
              const auto& flags = node->is(symbols::kMayBeUndefined);
              may_be_undefined.assign(flags.begin(), flags.end());
            }
            const size_t num_outputs = node->inputs().size() - 1;  // the first is the tape
            return [lists, may_be_undefined, num_outputs](Stack& stack) {
              tape_backward(stack, num_outputs, lists, may_be_undefined);
            };
          },
          c10::AliasAnalysisKind::PURE_FUNCTION),
  });
}

}  // namespace aten_recompute
