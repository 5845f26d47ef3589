// Errors that a user of the library can mend, as types with fields.
//
//   try {
//     loss = lowered.forward({tokens, targets}).toTensor();
//   } catch (const std::exception& error) {
//     const auto typed = aten_recompute::typed_error(error);
//     if (const auto* budget =
//             dynamic_cast<const aten_recompute::BudgetUnreachableError*>(typed.get()))
//       std::cerr << "the smallest budget is " << budget->smallest_peak_bytes << " bytes\n";
//   }
//
// TorchScript's interpreter turns every error inside a method into a std::runtime_error with a text
// of many lines; typed_error() finds the one that was thrown. Functions of this library throw the
// types themselves: catch (const aten_recompute::NoSuchMethodError& error).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace aten_recompute {

/// Where the memory of a step is largest: an operator, and what is in memory while it runs.
struct PeakOperator {
  std::string name;             ///< "aten::convolution_backward"; "" if it is not known
  std::string layer;            ///< path of its module from the root, "layer3.0"; "" if not known
  std::string source;           ///< source line, "resnet.py:52"; "" if not known
  int64_t operand_bytes = 0;    ///< what it reads, parameters and inputs of the step excepted
  int64_t result_bytes = 0;     ///< what it returns, unless that lies in the memory of an operand
  int64_t workspace_bytes = 0;  ///< what it allocates besides while it runs
  int64_t other_bytes = 0;      ///< everything else that is alive; the sum of all is the peak
};

/// The base of all errors of this library that a user can mend. It is no std::exception, because
/// what is thrown is a std::invalid_argument (arguments of a function) or a std::runtime_error (all
/// else) as well, and can be caught as either.
class Error {
 public:
  /// `message` is one line.
  explicit Error(std::string message) : message_(std::move(message)) {}
  virtual ~Error() = default;

  /// Returns the message.
  virtual const char* what() const noexcept { return message_.c_str(); }
  /// Returns the name of the class, such as "BudgetUnreachableError".
  virtual const char* type() const noexcept { return "Error"; }
  /// Returns a copy of the same class.
  virtual std::shared_ptr<Error> copy() const { return std::make_shared<Error>(*this); }
  /// Returns a copy of the same class with another message.
  std::shared_ptr<Error> with_message(std::string message) const {
    auto other = copy();
    other->message_ = std::move(message);
    return other;
  }

  /// Throws the error. It can be caught by its class and as std::runtime_error.
  [[noreturn]] virtual void raise() const;
  /// Throws the error. It can be caught by its class and as std::invalid_argument.
  [[noreturn]] virtual void raise_as_invalid_argument() const;

 private:
  std::string message_;
};

namespace detail {

/// What every class of errors overrides.
template <class Kind>
class ErrorOf : public Error {
 public:
  using Error::Error;
  const char* type() const noexcept override { return Kind::kType; }
  std::shared_ptr<Error> copy() const override {
    return std::make_shared<Kind>(static_cast<const Kind&>(*this));
  }
  [[noreturn]] void raise() const override;
  [[noreturn]] void raise_as_invalid_argument() const override;
};

}  // namespace detail

/// No plan keeps the budget. Thrown by the call that plans, which is the first one, or one with
/// larger inputs.
class BudgetUnreachableError : public detail::ErrorOf<BudgetUnreachableError> {
 public:
  static constexpr const char* kType = "BudgetUnreachableError";
  using ErrorOf::ErrorOf;

  int64_t smallest_peak_bytes = 0;   ///< the smallest budget that can be kept
  int64_t limit_bytes = 0;           ///< the budget
  int64_t unplanned_peak_bytes = 0;  ///< the peak without recomputation
  PeakOperator peak_operator;        ///< where the smallest peak is
};

/// A plan file was made for another model.
class PlanMismatchError : public detail::ErrorOf<PlanMismatchError> {
 public:
  static constexpr const char* kType = "PlanMismatchError";
  using ErrorOf::ErrorOf;

  std::string region;  ///< fingerprint of the region for which the file has no plan
};

/// A module is neither lowered nor enabled.
class NotLoweredError : public detail::ErrorOf<NotLoweredError> {
 public:
  static constexpr const char* kType = "NotLoweredError";
  using ErrorOf::ErrorOf;
};

/// A function is not enabled.
class NotEnabledError : public detail::ErrorOf<NotEnabledError> {
 public:
  static constexpr const char* kType = "NotEnabledError";
  using ErrorOf::ErrorOf;
};

/// A module has no such method.
class NoSuchMethodError : public detail::ErrorOf<NoSuchMethodError> {
 public:
  static constexpr const char* kType = "NoSuchMethodError";
  using ErrorOf::ErrorOf;

  std::string method;  ///< its name
};

/// An option is unknown, or has a value that is not accepted.
class InvalidOptionError : public detail::ErrorOf<InvalidOptionError> {
 public:
  static constexpr const char* kType = "InvalidOptionError";
  using ErrorOf::ErrorOf;

  std::string option;  ///< its name; "" where the error is not about a single one
};

/// A rule, a shape or the flops of an operator cannot be registered.
class InvalidRuleError : public detail::ErrorOf<InvalidRuleError> {
 public:
  static constexpr const char* kType = "InvalidRuleError";
  using ErrorOf::ErrorOf;

  std::string op;  ///< the operator, as it was given; "" where the error is about a function alone
};

/// Returns the error of this library that `error` is, or that TorchScript's interpreter made
/// `error` of; nullptr if it is none. Works in any thread, for the last few dozen errors that were
/// thrown: an older one that went through the interpreter comes back as a plain Error.
std::shared_ptr<const Error> typed_error(const std::exception& error);

}  // namespace aten_recompute
