#include "command/failure.h"

#include <aten_recompute/aten_recompute.h>

#include <algorithm>

namespace aten_recompute::command {

Exit status_of(const std::exception& error) {
  if (const auto* const failure = dynamic_cast<const Failure*>(&error))
    return failure->status();
  if (const auto typed = typed_error(error)) {
    if (dynamic_cast<const BudgetUnreachableError*>(typed.get()) != nullptr)
      return Exit::kBudgetUnreachable;
    if (dynamic_cast<const InvalidOptionError*>(typed.get()) != nullptr ||
        dynamic_cast<const NoSuchMethodError*>(typed.get()) != nullptr ||
        dynamic_cast<const PlanMismatchError*>(typed.get()) != nullptr)
      return Exit::kBadArguments;
  }
  return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ? Exit::kBadArguments
                                                                       : Exit::kStepFailed;
}

std::string message_of(const std::exception& error) {
  auto message = dynamic_cast<const Failure*>(&error) != nullptr ? error.what() : one_line(error);
  const std::string prefix = "aten_recompute: ";
  if (message.rfind(prefix, 0) == 0)
    message.erase(0, prefix.size());
  message.erase(std::min(message.find('\n'), message.size()));
  return message;
}

}  // namespace aten_recompute::command
