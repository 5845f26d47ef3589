// What can be asked of lowered and enabled modules.
#include <aten_recompute/aten_recompute.h>

#include <nlohmann/json.hpp>

#include "backend/method/planned_function.h"
#include "backend/method/planned_methods.h"
#include "planner/model/plan_file.h"
#include "runtime/arena/arena.h"

namespace aten_recompute {
namespace {

using torch::jit::Module;

std::string report_of_all(const PlannedMethods& planned) {
  auto methods = nlohmann::json::array();
  for (const auto& method : planned)
    methods.push_back(nlohmann::json::parse(method->report()));
  return nlohmann::json{{"methods", methods}}.dump();
}

std::string plan_of(const PlannedMethods& planned) {
  std::vector<std::string> parts;
  KeptBranches kept;
  for (const auto& method : planned) {
    auto of_method = method->plans();
    parts.insert(parts.end(), of_method.begin(), of_method.end());
    if (auto branches = method->kept_branches(); !branches.empty())
      kept[method->name()] = std::move(branches);
  }
  return plan_file(parts, kept);
}

std::vector<std::string> problems_of(const PlannedMethods& planned) {
  std::vector<std::string> problems;
  for (const auto& method : planned) {
    auto of_method = method->problems();
    problems.insert(problems.end(), of_method.begin(), of_method.end());
  }
  return problems;
}

}  // namespace

std::string report(const Module& module) {
  return report_of_all(planned_methods_of(module, "report"));
}

std::string report(torch::jit::Function& function) {
  return report_of_all(planned_methods_of(function, "report"));
}

std::string plan(const Module& module) {
  return plan_of(planned_methods_of(module, "plan"));
}

std::string plan(torch::jit::Function& function) {
  return plan_of(planned_methods_of(function, "plan"));
}

std::vector<std::string> problems(const Module& module) {
  return problems_of(planned_methods_of(module, "problems"));
}

std::vector<std::string> problems(torch::jit::Function& function) {
  return problems_of(planned_methods_of(function, "problems"));
}

void release_memory() {
  PlannedFunction::forget_dead_objects();
  ArenaPool::instance().clear();
}

}  // namespace aten_recompute
