#include "planner/model/explain_peak.h"

#include <nlohmann/json.hpp>

#include "common/size_text.h"
#include "planner/model/method_problem.h"

namespace aten_recompute {
namespace {

constexpr const char* kLoss = "loss";
constexpr const char* kBetweenRegions = "between regions";

// Returns what would make the smallest peak smaller; "" where nothing stands out.
std::string advice(const PeakStep& peak, int64_t limit_bytes, const Options& options) {
  if (peak.alone_bytes > limit_bytes) {
    return "; this operator alone needs " + nearest_size(peak.alone_bytes) +
           ", so no plan can keep the budget: a smaller batch or smaller inputs would help";
  }
  const auto half =
      (peak.operand_bytes + peak.result_bytes + peak.workspace_bytes + peak.other_bytes) / 2;
  if (peak.gradient_bytes > half && !options.accumulate) {
    return "; " + nearest_size(peak.gradient_bytes) +
           " of the other values are gradients; those of parameters do not count with "
           "\"accumulate\": true, for steps that add to gradients that exist";
  }
  if (peak.output_bytes > half && !options.release_outputs) {
    return "; " + nearest_size(peak.output_bytes) +
           " of the other values are outputs; they do not count with \"release_outputs\": true, "
           "for callers that free them before the backward";
  }
  return "";
}

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

std::string explanation(const Problem& problem, const PeakStep& peak, int64_t limit_bytes,
                        const Options& options) {
  const auto where = peak_operator(problem, peak);
  if (where.name.empty())
    return "";
  const auto others = ", other values " + nearest_size(peak.other_bytes);
  const auto place = "; the peak is at " + describe(where);
  if (peak.at_loss) {
    return place + ": outputs " + nearest_size(peak.operand_bytes) + ", what the loss needs " +
           nearest_size(peak.workspace_bytes) + others;
  }
  return place + ": operands " + nearest_size(peak.operand_bytes) + ", results " +
         nearest_size(peak.result_bytes) + ", workspace " + nearest_size(peak.workspace_bytes) +
         others + advice(peak, limit_bytes, options);
}

}  // namespace aten_recompute
