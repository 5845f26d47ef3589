#include "planner/model/explain_peak.h"

#include <nlohmann/json.hpp>

#include "planner/model/method_problem.h"

namespace aten_recompute {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kBetweenRegions = "between regions";

}  // namespace

PeakOperator peak_operator(const Problem& problem, const PeakStep& peak) {
  PeakOperator result;
  result.operand_bytes = peak.operand_bytes;
  result.result_bytes = peak.result_bytes;
  result.workspace_bytes = peak.workspace_bytes;
  result.other_bytes = peak.other_bytes;
  if (peak.at_loss) {
    result.name = kLoss;
  } else if (peak.node >= 0) {
    result.name = problem.node_names[peak.node];
    if (is_border(result.name))
      result.name = kBetweenRegions;
    result.layer = problem.layer_of(peak.node);
    result.source = problem.source_of(peak.node);
  }
  return result;
}

std::string to_json(const PeakOperator& peak) {
  return nlohmann::json{{"name", peak.name},
                        {"layer", peak.layer},
                        {"source", peak.source},
                        {"operand_bytes", peak.operand_bytes},
                        {"result_bytes", peak.result_bytes},
                        {"workspace_bytes", peak.workspace_bytes},
                        {"other_bytes", peak.other_bytes}}
      .dump(-1, ' ', false,
            nlohmann::json::error_handler_t::replace);  // names of files are any bytes
}

std::string describe(const PeakOperator& peak) {
  if (peak.name == kLoss)
    return "the loss";
  if (peak.name == kBetweenRegions)
    return "operators between the regions";
  auto text = peak.name;
  if (!peak.layer.empty())
    text += " of " + peak.layer;
  if (!peak.source.empty())
    text += " (" + peak.source.substr(peak.source.find_last_of('/') + 1) + ")";
  return text;
}

}  // namespace aten_recompute
