#include "backend/method/lowered_method.h"

#include <ATen/core/grad_mode.h>
#include <aten_recompute/errors.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "backend/method/before_call.h"
#include "backend/method/changing_attributes.h"
#include "backend/method/outside_regions.h"
#include "backend/method/report_specialization.h"
#include "backend/pictures/artifacts.h"
#include "backend/planning/method_call.h"
#include "common/did_you_mean.h"
#include "common/join.h"
#include "common/log.h"
#include "common/parse_options.h"
#include "common/strategy_traits.h"
#include "common/user_error.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/prepare_method.h"
#include "planner/model/plan_file.h"
#include "planner/model/problem_json.h"
#include "runtime/one_line_errors.h"
#include "runtime/out_of_memory.h"
#include "runtime/path_check.h"

namespace aten_recompute {
namespace {

using torch::jit::Module;
using torch::jit::Node;
using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// More paths of one method than this are not worth their compilation.
constexpr size_t kMaxPaths = 32;
// The same for paths that differ in the course of a call only, where following the wrong one costs
// time.
constexpr size_t kMaxPathsLeft = 24;

std::shared_ptr<torch::jit::Graph> graph_of(const Module& module, const std::string& method) {
  return torch::jit::toGraphFunction(module.get_method(method).function()).graph();
}

// Returns the pattern of the spec, or that of inject_layer_tags(), which sets an attribute.
std::string layer_pattern_of(const Module& module, const Options& options) {
  if (!options.layer_pattern.empty() || !module.hasattr(kLayerPatternAttribute))
    return options.layer_pattern;
  const auto pattern = module.attr(kLayerPatternAttribute);
  return pattern.isString() ? pattern.toStringRef() : "";  // enable() gives a module without values
}

// Returns the reason why a call cannot follow a plan; nullptr where it can.
const char* why_unplanned() {
  if (c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode))
    return "a transform of torch.func is on";
  if (c10::impl::TorchDispatchModeTLS::any_modes_set())
    return "a TorchDispatchMode is on";
  if (torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr)
    return "forward-mode differentiation is on";
  return nullptr;
}

void say_that_unplanned(const std::string& reason) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard<std::mutex> lock(mutex);
  if (said.insert(reason).second)
    log_warning(LogTopic::kSpecialize,
                reason + ": lowered modules run unplanned, as plain TorchScript");
}

// Returns whether the error is about the plan, not about what the method computes.
bool is_ours(const std::exception& error) {
  return typed_error(error) != nullptr ||
         dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
}

}  // namespace

// Autocast keeps the casts of parameters to the end of its block, for all operators that read them.
// Regions share their gradients (backend/autograd/shared_casts.h), but not with operators outside.
const char* LoweredMethod::why_unplanned_under_autocast(const Specialization& specialization) {
  return specialization.autocast.is_on() && specialization.may_cast_outside
             ? "autocast is on, and operators run outside of the method's planned regions"
             : nullptr;
}

bool LoweredMethod::may_follow(const std::vector<PathCheck>& checks, const LeftPath& left) {
  const auto& known = left.path->method.checks;
  const auto place = static_cast<std::ptrdiff_t>(left.place);
  return checks.size() > left.place &&
         std::equal(known.begin(), known.begin() + place, checks.begin(), ask_the_same) &&
         !ask_the_same(checks[left.place], known[left.place]);
}

void check_options(const Module& module, const std::string& method, const Options& options) try {
  if (traits_of(options).follows_plan_file)
    check_plan_file(options.plan);
  const auto pattern = layer_pattern_of(module, options);
  if (!pattern.empty())
    check_layer_pattern(*graph_of(module, method), pattern);
} catch (const std::exception&) {
  rethrow_as_invalid_argument();
}

LoweredMethod::LoweredMethod(Module module, std::string method, const std::string& spec,
                             const std::string& layer_pattern)
    : module_(std::move(module)), method_(std::move(method)), options_(resolve_options(spec)) {
  if (!module_.find_method(method_)) {
    NoSuchMethodError error("the module has no method \"" + method_ + "\" to lower");
    error.method = method_;
    error.raise_as_invalid_argument();
  }
  options_.layer_pattern = layer_pattern_of(module_, options_);
  if (options_.layer_pattern.empty())
    options_.layer_pattern = layer_pattern;
  if (traits_of(options_).follows_plan_file) {
    auto kept = kept_branches_of(options_.plan);
    kept_branches_ = std::move(kept[method_]);
  }
  options_.save_ir = options_.save_ir || saves_ir_by_environment();
  if (options_.save_ir)
    artifacts_ = std::make_unique<Artifacts>(module_._ivalue(), class_name(), method_);
  checked_words_ = !traits_of(options_).matches_words;
}

LoweredMethod::~LoweredMethod() = default;

c10::IValue LoweredMethod::run(const Object& self, std::vector<c10::IValue> inputs) try {
  // TorchScript optimizes a method that is not inlined here, such as that of an interface, once it
  // has been called a few times. Its gradients of tanh and some other operators then have other
  // last bits than eager's.
  const torch::jit::GraphOptimizerEnabledGuard executor(!options_.exact &&
                                                        torch::jit::getGraphExecutorOptimize());
  if (const char* reason = why_unplanned()) {
    say_that_unplanned(reason);
    return run_unplanned(self, std::move(inputs), reason);
  }
  return options_.retries_leaner ? run_or_retry(self, std::move(inputs))
                                 : run_planned(self, std::move(inputs));
} catch (const std::exception&) {
  rethrow_in_one_line();
}

c10::IValue LoweredMethod::run_planned(const Object& self, std::vector<c10::IValue> inputs) {
  std::vector<LeftPath> left;
  while (true) {
    const auto specialization = find(self, inputs, left);
    const auto& method = specialization->method;
    if (const char* reason = why_unplanned_under_autocast(*specialization)) {
      say_that_unplanned(reason);
      return run_unplanned(self, std::move(inputs), reason);
    }
    bool has_run = false;
    // Without exactness, an operator may run in slices, before a check that would fail.
    if (options_.exact && !method.may_leave_path() && !method.has_late_changes &&
        !method.may_lack_gradients)
      return run(*specialization, self, std::move(inputs), has_run);
    path_left();
    BeforeCall before(method.written, self, inputs);
    std::optional<int64_t> place;
    try {
      return run(*specialization, self, inputs, has_run);
    } catch (const std::exception& error) {
      if (has_run)
        throw;
      place = path_left();
      const bool will_retry = options_.retries_leaner && is_out_of_memory(error);
      if (!place && (!method.has_late_changes || is_ours(error) || will_retry))
        throw;
      if (!place)
        log_info(LogTopic::kPaths,
                 std::string("a call that raised is repeated as it was scripted: ") + error.what());
    }
    before.restore();
    if (!place || *place == kRunAsScripted) {
      return run_unplanned(self, std::move(inputs),
                           place ? why_all_paths_left()
                                 : "the planned call raised an error before all changes to "
                                   "attributes and containers were made");
    }
    left.push_back({specialization, static_cast<size_t>(*place)});
  }
}

c10::IValue LoweredMethod::run(Specialization& specialization, const Object& self,
                               std::vector<c10::IValue> inputs, bool& has_run) {
  const CloseAutocastBlocks close_blocks;  // of an attempt that ends early
  const auto drop = [&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    forget_if([&](const Specialization& each) { return &each == &specialization; });
  };
  MethodCall call(specialization.plans, inputs);
  const ArenaCall arena_call;
  torch::jit::Stack stack;
  stack.reserve(inputs.size() + 1);
  stack.emplace_back(self);
  for (auto& input : inputs)
    stack.push_back(std::move(input));
  inputs.clear();
  try {
    torch::jit::InterpreterState(*specialization.code).run(stack);
  } catch (const std::exception& error) {
    // Where it has no path because its call raises, others that leave the same paths raise, too.
    const bool is_callers = !is_out_of_memory(error) && !is_ours(error);
    if (specialization.method.seems_to_raise) {
      specialization.raised = is_callers && !specialization.left_places.empty();
      if (!specialization.raised)
        drop();
    }
    throw;
  }
  has_run = true;
  if (specialization.raised)
    drop();
  call.finish(stack.front());
  if (!checked_words_.load(std::memory_order_relaxed))
    warn_of_unmatched_words(specialization);
  if (artifacts_ != nullptr)
    write_artifacts();
  if (log_enabled(LogTopic::kBreaks, LogLevel::kInfo) && !specialization.reported.exchange(true)) {
    std::ostringstream line;
    line << method_ << " (" << describe(options_) << "): " << specialization.regions.size()
         << (specialization.regions.size() == 1 ? " region" : " regions");
    for (const auto& region_break : specialization.method.regions.breaks) {
      line << "; break at " << region_break.node << " (" << region_break.reason
           << (region_break.location.empty() ? "" : ", " + region_break.location) << ")";
    }
    log_info(LogTopic::kBreaks, line.str());
  }
  if (log_enabled(LogTopic::kRules, LogLevel::kInfo) &&
      !specialization.reported_rules.exchange(true)) {
    std::vector<std::string> on_tape;
    for (const auto& region : specialization.regions) {
      for (const auto& compiled_region : specialization.compiled_regions_of(*region)) {
        for (const auto& op : compiled_region->graphs().report.operators.on_tape)
          on_tape.push_back(op);
      }
    }
    log_info(LogTopic::kRules, method_ + ": operators without a rule, on tape: " +
                                   (on_tape.empty() ? "none" : join(on_tape, ", ")));
  }
  return std::move(stack.front());
}

void LoweredMethod::write_artifacts() {
  struct Written {
    std::shared_ptr<const CompiledRegion> variant;
    size_t specialization;
    size_t region;
    std::vector<bool> is_attribute;
  };
  std::vector<Written> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& specialization : specializations_) {
      for (size_t i = 0; i < specialization->regions.size(); ++i) {
        for (const auto& variant : specialization->compiled_regions_of(*specialization->regions[i]))
          all.push_back({variant, specialization->number, i, specialization->is_attribute(i)});
      }
    }
  }
  bool any = false;
  for (const auto& each : all) {
    any =
        artifacts_->write(each.variant, each.specialization, each.region, each.is_attribute) || any;
  }
  if (!any)
    return;
  if (const auto of_method = plans(); !of_method.empty()) {
    KeptBranches kept;
    if (auto branches = kept_branches(); !branches.empty())
      kept[method_] = std::move(branches);
    artifacts_->write_plan(plan_file(of_method, kept));
  }
}

void LoweredMethod::warn_of_unmatched_words(const Specialization& specialization) {
  std::vector<UnmatchedWords> regions;
  for (const auto& region : specialization.regions) {
    for (const auto& compiled_region : region->compiled_regions())
      regions.push_back(compiled_region->graphs().report.unmatched);
  }
  if (regions.empty() || checked_words_.exchange(true))
    return;
  auto unmatched = regions.front();
  for (const auto& region : regions) {
    std::erase_if(unmatched.words, [&](const auto& word) { return !region.words.contains(word); });
    unmatched.names.insert(region.names.begin(), region.names.end());
  }
  if (unmatched.words.empty())
    return;
  constexpr size_t kMaxNames = 20;
  std::vector<std::string> names(unmatched.names.begin(), unmatched.names.end());
  std::set<std::string> stems;  // names of values without their numbers, which nobody mistypes
  for (const auto& name : names)
    stems.insert(name.substr(0, name.find_first_of("0123456789")));
  std::string hints;
  for (const auto& word : unmatched.words)
    hints += did_you_mean(word.substr(word[0] == '%' ? 1 : 0), {stems.begin(), stems.end()});
  const bool all = names.size() <= kMaxNames;
  names.resize(std::min(names.size(), kMaxNames));
  log_warning(LogTopic::kPlan, method_ + " (" + describe(options_) +
                                   "): nothing that is kept for the backward matches " +
                                   join({unmatched.words.begin(), unmatched.words.end()}, ", ") +
                                   "; there are: " + (names.empty() ? "none" : join(names, ", ")) +
                                   (all ? "" : ", ... (report() has all)") + hints);
}

std::shared_ptr<torch::jit::Code> LoweredMethod::unplanned_code(const c10::TypePtr& type) {
  for (const auto& [known, code] : unplanned_) {
    if (*known == *type)
      return code;
  }
  auto graph = inline_method(*graph_of(module_, method_));
  graph->inputs()[0]->setType(type);
  unplanned_.emplace_back(type, std::make_shared<torch::jit::Code>(graph, method_));
  return unplanned_.back().second;
}

c10::IValue LoweredMethod::run_unplanned(const Object& self, std::vector<c10::IValue> inputs,
                                         const std::string& reason) {
  std::shared_ptr<torch::jit::Code> code;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    code = unplanned_code(self->type());
    ++unplanned_calls_[reason];
  }
  const CloseAutocastBlocks close_blocks;
  torch::jit::Stack stack;
  stack.emplace_back(self);
  for (auto& input : inputs)
    stack.push_back(std::move(input));
  torch::jit::InterpreterState(*code).run(stack);
  return std::move(stack.front());
}

std::vector<std::pair<size_t, size_t>> LoweredMethod::places_of(const std::vector<LeftPath>& left) {
  std::vector<std::pair<size_t, size_t>> places;
  for (const auto& each : left)
    places.emplace_back(each.path->number, each.place);
  return places;
}

LoweredMethod::SpecializationPtr LoweredMethod::find(const Object& self,
                                                     const std::vector<c10::IValue>& inputs,
                                                     const std::vector<LeftPath>& left) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto left_places = places_of(left);
  const auto fits = [&](const SpecializationPtr& specialization) {
    const auto& checks = specialization->method.checks;
    return (!specialization->raised || specialization->left_places == left_places) &&
           std::all_of(left.begin(), left.end(),
                       [&](const auto& each) { return may_follow(checks, each); }) &&
           specialization->self_type == self->type() && specialization->fits_autocast() &&
           specialization->method.assumptions.hold(self, inputs);
  };
  if (recent_ != nullptr && fits(recent_))
    return recent_;
  for (const auto& specialization : specializations_) {
    if (specialization != recent_ && fits(specialization))
      return recent_ = specialization;
  }
  if (!left.empty() && !keep_branch_of(left.back()) && ++num_paths_left_ > kMaxPathsLeft)
    stop_recording_paths();
  if (log_enabled(LogTopic::kSpecialize, LogLevel::kInfo))
    say_why_compiled(self, inputs, left);
  read_changing_numbers(self);
  specializations_.push_back(compile(self, inputs));
  auto found = recent_ = specializations_.back();
  found->number = num_compiled_++;
  found->left_places = left_places;
  if (found->method.assumptions.path != nullptr && ++num_paths_ >= kMaxPaths)
    stop_recording_paths();
  return found;
}

void LoweredMethod::say_why_compiled(const Object& self, const std::vector<c10::IValue>& inputs,
                                     const std::vector<LeftPath>& left) const {
  if (specializations_.empty() && left.empty())
    return;
  std::vector<std::string> names;
  const auto& arguments = module_.get_method(method_).function().getSchema().arguments();
  for (size_t i = 1; i < arguments.size(); ++i)
    names.push_back(arguments[i].name());
  const auto& other =
      recent_ != nullptr || specializations_.empty() ? recent_ : specializations_.back();
  std::string why;
  if (!left.empty() || other == nullptr)
    why = "data of this call answer an if or a loop differently than the path that it followed";
  else if (other->self_type != self->type())
    why = "the module is of another class";
  else if (!other->fits_autocast())
    why = "autocast has other settings";
  else
    why = other->method.assumptions.difference(self, inputs, names);
  log_info(LogTopic::kSpecialize, method_ + " is compiled again (for the " +
                                      std::to_string(specializations_.size() + 1) +
                                      ". time): " + why);
}

void LoweredMethod::stop_recording_paths() {
  if (!std::exchange(records_paths_, false))
    return;
  log_warning(LogTopic::kPaths,
              method_ +
                  " takes many paths: calls that take another one run with its control flow, "
                  "and a budget is planned for the stretches between");
  forget_if([](const Specialization& each) { return each.method.may_leave_path(); });
}

bool LoweredMethod::keep_branch_of(const LeftPath& left) {
  const auto decision = left.path->method.checks.at(left.place).decision;
  if (decision < 0 || !kept_branches_.insert(decision).second)
    return false;
  forget_if([&](const Specialization& each) {
    const auto& checks = each.method.checks;
    return std::any_of(checks.begin(), checks.end(),
                       [&](const PathCheck& check) { return check.decision == decision; });
  });
  return true;
}

void LoweredMethod::read_changing_numbers(const Object& self) {
  const auto changing = changing_numbers(specializations_, self);
  if (changing.empty())
    return;
  changing_numbers_.insert(changing.begin(), changing.end());
  forget_if([&](const Specialization& each) { return is_compiled_for_any(each, changing); });
}

void LoweredMethod::forget_if(const std::function<bool(const Specialization&)>& condition) {
  std::erase_if(specializations_, [&](const auto& each) { return condition(*each); });
  if (recent_ != nullptr && condition(*recent_))
    recent_ = nullptr;
}

LoweredMethod::SpecializationPtr LoweredMethod::compile(
    const Object& self, const std::vector<c10::IValue>& inputs) const {
  auto result = std::make_shared<Specialization>();
  result->self_type = self->type();
  const auto autocast = AutocastState::current();
  const WithoutAutocastCache no_cache;
  // A plan keeps a budget that operators in their order do not, be it those of a run without
  // gradients.
  const bool without_memory = num_paths_left_ == 0 && kept_branches_.empty();
  result->method = prepare_method({graph_of(module_, method_), self, inputs, options_.layer_pattern,
                                   records_paths_, kept_branches_,
                                   without_memory ? options_.memory_bytes : std::nullopt,
                                   changing_numbers_, options_.retries_leaner});
  result->autocast = autocast.for_graph(result->method.depends_on_autocast);
  if (options_.fullgraph && result->method.regions.nodes.size() > 1) {
    std::vector<std::string> breaks;
    for (const auto& region_break : result->method.regions.breaks) {
      breaks.push_back(region_break.node + " " + region_break.reason + " (" +
                       region_break.location + ")");
    }
    throw UserError("fullgraph: " + method_ + " has " +
                    std::to_string(result->method.regions.nodes.size()) +
                    " regions instead of one; breaks: " + join(breaks, "; "));
  }
  // After the first paths, training is under way, too late for an error.
  auto options = leaner_budget_.applied_to(options_);
  options.leanest_if_unreachable = options.leanest_if_unreachable || num_paths_left_ > 0;
  const auto& nodes = result->method.regions.nodes;
  auto& graph = *result->method.graph;
  const bool keeps_outside = !nodes.empty() && keeps_memory_outside(graph);
  const bool runs_several =
      nodes.size() > 1 || std::any_of(nodes.begin(), nodes.end(), is_in_a_loop) || keeps_outside;
  result->may_cast_outside = !nodes.empty() && (may_cast_outside(graph) || calls_methods(graph));
  if (result->autocast.is_on() && !result->may_cast_outside)
    result->may_cast_outside = may_cast_unplanned(nodes);
  if (runs_several && traits_of(options_).plans_whole_calls)
    result->plans = std::make_shared<MethodPlans>(method_, options);
  for (auto* node : nodes) {
    auto region =
        c10::make_intrusive<Region>(node->g(c10::attr::Subgraph), attribute_flags(node), options,
                                    runs_several, pinned_plan_, method_memory_around(node));
    node->ival_(symbols::kRegion, c10::IValue::make_capsule(region));
    result->regions.push_back(std::move(region));
  }
  result->code = std::make_unique<torch::jit::Code>(result->method.graph, method_);
  return result;
}

void LoweredMethod::for_each_profiled(
    const std::function<void(const RegionPlan&)>& function) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& specialization : specializations_) {
    for (const auto& compiled_region : specialization->newest_compiled_regions()) {
      if (compiled_region->plan() != nullptr)
        function(*compiled_region->plan());
    }
  }
}

std::vector<std::string> LoweredMethod::plans() const {
  std::vector<std::string> plans;
  for_each_profiled([&](const RegionPlan& plan) {
    plans.push_back(plan_to_json(*plan.problem, *plan.retention, plan.handed));
  });
  return plans;
}

std::set<int64_t> LoweredMethod::kept_branches() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return kept_branches_;
}

std::vector<std::string> LoweredMethod::problems() const {
  std::vector<std::string> problems;
  for_each_profiled([&](const RegionPlan& plan) { problems.push_back(to_json(*plan.problem)); });
  return problems;
}

CompiledCall LoweredMethod::latest_call() const {
  MethodCall::settle_last_step();
  const std::lock_guard<std::mutex> lock(mutex_);
  auto call = recent_ == nullptr ? CompiledCall{} : recent_->latest_call();
  for (auto i = specializations_.size(); call.runs.empty() && i-- > 0;)
    call = specializations_[i]->latest_call();
  return call;
}

std::string LoweredMethod::class_name() const {
  return module_.type()->name()->name();
}

std::string LoweredMethod::report() const {
  using nlohmann::json;
  MethodCall::settle_last_step();
  const std::lock_guard<std::mutex> lock(mutex_);
  json specializations = json::array();
  for (const auto& specialization : specializations_)
    specializations.push_back(report_of(*specialization));
  json unplanned_calls = json::array();
  for (const auto& [reason, calls] : unplanned_calls_)
    unplanned_calls.push_back({{"reason", reason}, {"calls", calls}});
  json report{{"method", method_},
              {"options", json::parse(to_json(options_))},
              {"specialisations", specializations},
              {"unplanned_calls", unplanned_calls}};
  if (const auto bytes = leaner_budget_.bytes())
    report["leaner_budget_bytes"] = *bytes;
  return report.dump();
}

void register_region_operator() {
  using torch::jit::Node;
  using torch::jit::Operation;
  static const torch::jit::RegisterOperators registered({torch::jit::Operator(
      symbols::kDifferentiableGraph,
      [](const Node* node) -> Operation {
        auto region =
            c10::static_intrusive_pointer_cast<Region>(node->ival(symbols::kRegion).toCapsule());
        return [region](torch::jit::Stack& stack) { region->run(stack); };
      },
      c10::AliasAnalysisKind::CONSERVATIVE)});
}

}  // namespace aten_recompute
