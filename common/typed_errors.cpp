#include "common/typed_errors.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/user_error.h"

namespace aten_recompute {
namespace {

// What is thrown: an error that can be caught by its class, and as a standard exception.
template <class Standard, class Kind>
class Thrown : public Standard, public Kind {
 public:
  explicit Thrown(const Kind& error) : Standard(error.what()), Kind(error) {}
  const char* what() const noexcept override { return Kind::what(); }
};

// Returns the first line of a message, without the prefix.
std::string key_of(const std::string& message) {
  const std::string prefix = kErrorPrefix;
  const auto line = message.substr(0, message.find('\n'));
  return line.rfind(prefix, 0) == 0 ? line.substr(prefix.size()) : line;
}

class RememberedErrors {
 public:
  void add(std::shared_ptr<const Error> error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    errors_.push_front({key_of(error->what()), std::this_thread::get_id(), std::move(error)});
    if (errors_.size() > kRememberedErrors)
      errors_.pop_back();
  }

  std::shared_ptr<const Error> find(const std::string& message) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto key = key_of(message);
    std::shared_ptr<const Error> found;
    for (const auto& each : errors_) {
      if (each.key != key)
        continue;
      if (each.thread == std::this_thread::get_id())
        return each.error;
      found = found == nullptr ? each.error : found;
    }
    return found;
  }

 private:
  struct Entry {
    std::string key;
    std::thread::id thread;
    std::shared_ptr<const Error> error;
  };

  mutable std::mutex mutex_;
  std::deque<Entry> errors_;  // the latest comes first
};

// Never destroyed, because destructors of static objects may throw and catch errors.
RememberedErrors& remembered_errors() {
  static auto* instance = new RememberedErrors();
  return *instance;
}

template <class Standard, class Kind>
[[noreturn]] void throw_as(const Kind& error) {
  remembered_errors().add(error.copy());
  throw Thrown<Standard, Kind>(error);
}

}  // namespace

void Error::raise() const {
  throw_as<UserError>(*this);
}

void Error::raise_as_invalid_argument() const {
  throw_as<std::invalid_argument>(*this);
}

namespace detail {

template <class Kind>
void ErrorOf<Kind>::raise() const {
  throw_as<UserError>(static_cast<const Kind&>(*this));
}

template <class Kind>
void ErrorOf<Kind>::raise_as_invalid_argument() const {
  throw_as<std::invalid_argument>(static_cast<const Kind&>(*this));
}

template class ErrorOf<BudgetUnreachableError>;
template class ErrorOf<PlanMismatchError>;
template class ErrorOf<NotLoweredError>;
template class ErrorOf<NotEnabledError>;
template class ErrorOf<NoSuchMethodError>;
template class ErrorOf<InvalidOptionError>;
template class ErrorOf<InvalidRuleError>;

}  // namespace detail

std::shared_ptr<const Error> remembered_error(const std::string& message) {
  return remembered_errors().find(message);
}

void remember_invalid_argument(const std::invalid_argument& error) {
  if (remembered_error(error.what()) == nullptr)
    remembered_errors().add(std::make_shared<Error>(error.what()));
}

std::string message_in_interpreter_text(const std::string& text) {
  const std::string before = "\nRuntimeError: ";
  const auto found = text.rfind(before + kErrorPrefix);
  if (found == std::string::npos)
    return "";
  const auto begin = found + before.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::shared_ptr<const Error> typed_error(const std::exception& error) {
  if (const auto* typed = dynamic_cast<const Error*>(&error))
    return typed->copy();
  auto message = message_in_interpreter_text(error.what());
  if (message.empty() && dynamic_cast<const UserError*>(&error) != nullptr)
    message = error.what();
  if (message.empty())
    return nullptr;
  if (auto known = remembered_error(message))
    return known->with_message(message);
  return std::make_shared<Error>(message);
}

}  // namespace aten_recompute
