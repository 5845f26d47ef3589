#include "command/failure.h"

#include <aten_recompute/aten_recompute.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

namespace aten_recompute::command {
namespace {

std::string text_of(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Returns the message in one line, or with line ends that belong to it.
std::string short_text_of(const std::exception& error) {
  if (dynamic_cast<const Failure*>(&error) != nullptr)
    return error.what();
  const auto text = text_of(error);
  const auto header = text.find("The following operation failed in the TorchScript interpreter");
  const auto cause = header == text.npos ? "" : detail::cause_of(text.substr(header));
  if (cause.empty())
    return one_line(error);
  // What a method raises may have several lines. Behind LibTorch's own errors, advice follows.
  const auto begin = text.rfind("\n" + cause);
  return text.substr(0, header) + (begin == text.npos ? cause : text.substr(begin + 1));
}

}  // namespace

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
  auto message = short_text_of(error);
  const std::string prefix = "aten_recompute: ";
  if (message.rfind(prefix, 0) == 0)
    message.erase(0, prefix.size());
  // What the library calls a key of its options is an option of the command line here.
  const std::string key = "invalid spec: key \"memory_budget\": ";
  if (message.rfind(key, 0) == 0)
    message = "--budget: " + message.substr(key.size()) + ", at least 2 B";
  message.erase(message.find_last_not_of(" \n\r") + 1);
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return message;
}

}  // namespace aten_recompute::command
