#include <aten_recompute/trace_and_lower.h>

#include <ATen/record_function.h>
#include <aten_recompute/aten_recompute.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "common/log.h"
#include "runtime/autocast.h"
#include "runtime/call_context.h"
#include "runtime/random_state.h"

namespace aten_recompute {
namespace {

using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("aten_recompute: trace_and_lower: " + what);
}

// A parameter or buffer under its path, such as {"layers", "0", "weight"}.
struct NamedTensor {
  std::vector<std::string> path;
  at::Tensor tensor;
  bool is_buffer = false;
};

// What a program has registered in its modules, in the order of registration.
struct Registered {
  std::vector<NamedTensor> tensors;
  std::string modes;  // of the modules: 't' for train, 'e' for eval
};

void add_registered(const torch::nn::Module& module, const std::vector<std::string>& path,
                    Registered& found) {
  found.modes += module.is_training() ? 't' : 'e';
  const auto at = [&](const std::string& name) {
    auto all = path;
    all.push_back(name);
    return all;
  };
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined())
      found.tensors.push_back({at(item.key()), item.value(), false});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined())
      found.tensors.push_back({at(item.key()), item.value(), true});
  }
  for (const auto& item : module.named_children())
    add_registered(*item.value(), at(item.key()), found);
}

Registered registered_in(const Modules& modules) {
  Registered found;
  for (size_t i = 0; i < modules.size(); ++i)
    add_registered(*modules[i], {"module" + std::to_string(i)}, found);
  return found;
}

// Returns a module without methods that has these parameters and buffers.
torch::jit::Module module_holding(const std::vector<NamedTensor>& tensors) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto make = [&](const std::string& name) {
    return torch::jit::Module(c10::QualifiedName("__torch__.aten_recompute.traced." + name), unit,
                              /*shouldMangle=*/true);
  };
  auto root = make("Function");
  std::map<std::vector<std::string>, torch::jit::Module> made;
  // Children are registered once their own attributes are known, the innermost first.
  std::vector<std::vector<std::string>> order;
  for (const auto& [path, tensor, is_buffer] : tensors) {
    std::vector<std::string> inside;
    for (size_t k = 0; k + 1 < path.size(); ++k) {
      inside.push_back(path[k]);
      if (made.try_emplace(inside, make("Module")).second)
        order.push_back(inside);
    }
    auto& owner = made.at(inside);
    if (is_buffer)
      owner.register_buffer(path.back(), tensor);
    else
      owner.register_parameter(path.back(), tensor, /*is_buffer=*/false);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const auto& path : order) {
    const std::vector<std::string> outer(path.begin(), path.end() - 1);
    (outer.empty() ? root : made.at(outer)).register_module(path.back(), made.at(path));
  }
  return root;
}

// Writes down what a trace may depend on.
class Key {
 public:
  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isTuple()) {
      add_all('(', value.toTupleRef().elements());
    } else if (value.isList()) {
      add_all('[', value.toListRef());
    } else if (value.isGenericDict()) {
      text_ << '{';
      for (const auto& item : value.toGenericDict()) {
        add(item.key());
        add(item.value());
      }
      text_ << '}';
    } else {
      text_ << value << ';';
    }
  }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      text_ << "none;";
      return;
    }
    text_ << tensor.scalar_type() << tensor.device() << tensor.sizes() << ';';
  }
  void add(const Registered& registered) {
    text_ << registered.modes;
    std::map<const void*, size_t> first;  // tied parameters have one name in a trace
    for (size_t i = 0; i < registered.tensors.size(); ++i) {
      const auto& [path, tensor, is_buffer] = registered.tensors[i];
      for (const auto& name : path)
        text_ << name << '.';
      text_ << first.emplace(tensor.unsafeGetTensorImpl(), i).first->second;
      add(tensor);
    }
  }
  std::string text() const { return text_.str(); }

 private:
  void add_all(char kind, const auto& values) {
    text_ << kind;
    for (const auto& value : values)
      add(value);
    text_ << ')';
  }
  std::ostringstream text_;
};

// Watches the operators that a function calls on this thread.
class OperatorWatch {
 public:
  OperatorWatch() : outer_(current()) {
    CallContext::current().operator_watch = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              current()->begin(function);
              return nullptr;
            },
            [](const at::RecordFunction&, at::ObserverContext*) { --current()->depth_; })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorWatch() {
    at::removeCallback(handle_);
    CallContext::current().operator_watch = outer_;
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

  // The first operator that ran without gradients on a tensor that requires one; "": there is none.
  const std::string& without_gradients() const { return without_gradients_; }
  // The first operator that gave a value of a tensor to C++; "": there is none.
  const std::string& reads_data() const { return reads_data_; }

 private:
  static OperatorWatch* current() {
    return static_cast<OperatorWatch*>(CallContext::current().operator_watch);
  }

  void begin(const at::RecordFunction& function) {
    if (depth_++ > 0)
      return;  // an operator calls others as it likes
    const std::string_view name = function.name();
    const bool needs_gradient = std::any_of(
        function.inputs().begin(), function.inputs().end(), [](const c10::IValue& input) {
          return input.isTensor() && input.toTensor().defined() && input.toTensor().requires_grad();
        });
    if (needs_gradient && !at::GradMode::is_enabled() && without_gradients_.empty())
      without_gradients_ = name;
    if (reads_data_.empty() && (name == "aten::item" || name == "aten::_local_scalar_dense" ||
                                name == "aten::is_nonzero" || name == "aten::equal"))
      reads_data_ = name;
  }

  OperatorWatch* outer_;
  at::CallbackHandle handle_ = 0;
  size_t depth_ = 0;
  std::string without_gradients_;
  std::string reads_data_;
};

// Restores random states and buffers.
class RestoreState {
 public:
  RestoreState(const std::vector<c10::IValue>& inputs, const Registered& registered)
      : generators_(all_of(inputs, registered)) {
    for (const auto& [path, tensor, is_buffer] : registered.tensors) {
      if (is_buffer)
        buffers_.emplace_back(tensor, tensor.detach().clone());
    }
  }
  ~RestoreState() {
    const at::NoGradGuard guard;
    // Batch norm updates its statistics without a new version.
    for (auto& [buffer, copy] : buffers_) {
      if (!at::equal(buffer, copy))
        buffer.copy_(copy);
    }
  }
  RestoreState(const RestoreState&) = delete;
  RestoreState& operator=(const RestoreState&) = delete;

 private:
  static std::vector<c10::IValue> all_of(std::vector<c10::IValue> values,
                                         const Registered& registered) {
    values.emplace_back(at::Tensor(at::empty({0})));  // the generator of the CPU
    for (const auto& named : registered.tensors)
      values.emplace_back(named.tensor);
    return values;
  }

  RestoreGenerators generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and copies
};

bool has_tensor_constant(torch::jit::Block* block) {
  for (auto* node : block->nodes()) {
    if (node->hasAttribute(c10::attr::value) &&
        node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t)
      return true;
    for (auto* inner : node->blocks()) {
      if (has_tensor_constant(inner))
        return true;
    }
  }
  return false;
}

// Returns a text that is the same for traces that do the same; nullopt if the text does not tell.
std::optional<std::string> text_of(torch::jit::Graph& traced) {
  const auto graph = traced.copy();
  if (has_tensor_constant(graph->block()))
    return std::nullopt;
  torch::jit::EraseShapeInformation(graph);
  return graph->toString(/*print_source_locations=*/false);
}

class Tracer {
 public:
  Tracer(TracedFunction::Function fn, std::string options, Modules modules)
      : fn_(std::move(fn)), options_(std::move(options)), modules_(std::move(modules)) {
    if (!fn_)
      refuse("the function is empty");
    if (std::find(modules_.begin(), modules_.end(), nullptr) != modules_.end())
      refuse("a module is null");
  }

  // Returns the lowered module for these inputs, with the tensors that are registered now.
  torch::jit::Module module_for(const std::vector<c10::IValue>& inputs, bool is_example) {
    const auto registered = registered_in(modules_);
    Key key;
    for (const auto& input : inputs)
      key.add(input);
    key.add(registered);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = traces_.try_emplace(key.text(), 0);
    if (is_new) {
      try {
        found->second = trace(inputs, registered, is_example);
      } catch (...) {
        traces_.erase(found);
        throw;
      }
    }
    const auto& module = lowered_[found->second].module;
    set_tensors(module, registered.tensors);
    return module;
  }

  std::vector<torch::jit::Module> modules() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<torch::jit::Module> all;
    for (const auto& each : lowered_)
      all.push_back(each.module);
    return all;
  }

 private:
  struct Lowered {
    std::optional<std::string> text;
    torch::jit::Module module;
  };

  static void set_tensors(const torch::jit::Module& module,
                          const std::vector<NamedTensor>& tensors) {
    for (const auto& [path, tensor, is_buffer] : tensors) {
      auto owner = module._ivalue();
      for (size_t k = 0; k + 1 < path.size(); ++k)
        owner = owner->getAttr(path[k]).toObject();
      const auto slot = owner->type()->getAttributeSlot(path.back());
      if (!owner->getSlot(slot).toTensor().is_same(tensor))
        owner->setSlot(slot, tensor);
    }
  }

  // Traces the function, and returns the index of a lowered module that does the same.
  size_t trace(const std::vector<c10::IValue>& inputs, const Registered& registered,
               bool is_example) {
    auto module = module_holding(registered.tensors);
    const auto graph = graph_of(module, inputs, registered, is_example);
    auto text = text_of(*graph);
    if (text) {
      *text += registered.modes;
      for (size_t i = 0; i < lowered_.size(); ++i) {
        if (lowered_[i].text == text)
          return i;
      }
    }
    auto* method = module._ivalue()->compilation_unit()->create_function(
        c10::QualifiedName(*module.type()->name(), "forward"), graph);
    module.type()->addMethod(method);
    lowered_.push_back({std::move(text), lower(module, options_)});
    if (lowered_.size() == kMany) {
      log_warning(LogTopic::kSpecialize,
                  "trace_and_lower: the function has been traced in " + std::to_string(kMany) +
                      " different ways, each of which is planned by itself; what it computes from "
                      "sizes in C++ is a constant of each trace, so use -1 in view() and functions "
                      "such as flatten() where they serve");
    }
    return lowered_.size() - 1;
  }

  std::shared_ptr<torch::jit::Graph> graph_of(torch::jit::Module& module,
                                              const std::vector<c10::IValue>& inputs,
                                              const Registered& registered, bool is_example) {
    const RestoreState restore(inputs, registered);
    const WithoutAutocast no_autocast;  // a call has its own
    const at::AutoGradMode gradients(is_example);
    const OperatorWatch watch;
    bool has_failed = false;  // the function, not the tracer
    const auto run = [&](torch::jit::Stack stack) -> torch::jit::Stack {
      try {
        return {fn_(std::move(stack))};
      } catch (const std::exception& error) {
        has_failed = std::string_view(error.what()).find(kNotAnInput) == std::string_view::npos;
        throw;
      }
    };
    std::shared_ptr<torch::jit::Graph> graph;
    try {
      graph = torch::jit::tracer::trace(
                  inputs, run, [](const at::Tensor&) { return std::string(); },
                  /*strict=*/false, /*force_outplace=*/false, &module)
                  .first->graph;
    } catch (const std::exception& error) {
      const std::string_view what = error.what();
      if (has_failed)
        throw;
      if (what.find(kNotAnInput) != std::string_view::npos) {
        refuse(
            "the function reads a tensor that requires a gradient and is neither an input nor a "
            "parameter of `modules`; pass the module that has it, or the tensor as an input");
      }
      refuse("the function cannot be traced: " + std::string(what.substr(0, what.find('\n'))));
    }
    if (is_example && !watch.without_gradients().empty()) {
      refuse("the function switches gradients off, as by torch::NoGradGuard, for " +
             watch.without_gradients() +
             "; a trace does not know that: use detach(), or call the part outside of it");
    }
    if (!watch.reads_data().empty()) {
      log_warning(LogTopic::kSpecialize,
                  "trace_and_lower: the function reads a value of a tensor (" + watch.reads_data() +
                      "); what C++ decides or computes with it is the same in all later calls");
    }
    return graph;
  }

  // Part of the tracer's error about a tensor that is no input and requires a gradient.
  static constexpr std::string_view kNotAnInput = "requires grad as a constant";
  static constexpr size_t kMany = 16;

  TracedFunction::Function fn_;
  std::string options_;
  Modules modules_;
  mutable std::mutex mutex_;
  std::map<std::string, size_t> traces_;  // index in lowered_, by key
  std::vector<Lowered> lowered_;
};

}  // namespace

TracedFunction trace_and_lower(TracedFunction::Function fn,
                               const std::vector<c10::IValue>& example_inputs,
                               const std::string& options, Modules modules) {
  const auto tracer = std::make_shared<Tracer>(std::move(fn), options, std::move(modules));
  tracer->module_for(example_inputs, /*is_example=*/true);
  return {[tracer](std::vector<c10::IValue> inputs) {
            const auto module = tracer->module_for(inputs, /*is_example=*/false);
            return module.get_method("forward")(std::move(inputs));
          },
          [tracer] { return tracer->modules(); }};
}

}  // namespace aten_recompute
