// How a subcommand ends, and what the shell is told.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace aten_recompute::command {

// The exit status of the program. docs/command.md documents the numbers.
enum class Exit {
  kSuccess = 0,
  kCheckFailed = 1,        // `check`: the peak is above the limit
  kBadArguments = 2,       // what was typed is wrong: syntax, options, methods, inputs
  kBadFile = 3,            // a file cannot be read, or is not what it should be
  kCannotWrite = 4,        // a result cannot be written
  kBudgetUnreachable = 5,  // no plan keeps the budget
  kStepFailed = 6,         // the step cannot run, or is not known without running it
};

// Ends the program: the message, which is one line, goes to stderr.
class Failure : public std::runtime_error {
 public:
  Failure(Exit status, const std::string& message) : std::runtime_error(message), status_(status) {}

  Exit status() const { return status_; }

 private:
  Exit status_;
};

// Returns the exit status of an error, and its message in one line. `error` is a Failure, an error
// of the library, or one of LibTorch.
Exit status_of(const std::exception& error);
std::string message_of(const std::exception& error);

}  // namespace aten_recompute::command
