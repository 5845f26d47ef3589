// A process that measures the steps of one module, one at a time, when it is asked.
#pragma once

#include <sys/types.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <string>

namespace aten_recompute::command {

// Answers a request: returns an object, or throws.
using Answer = std::function<nlohmann::json(const std::string& request)>;

// A child process that answers requests. Its memory is that of its own work alone, which is why two
// modules that are compared have one each. It ends with the object, and with this process however
// that ends.
class Worker {
 public:
  // `name` is what errors call the process. `start` runs in the child and returns what answers; it
  // may throw, as an answer may. No other thread may run in this process.
  Worker(std::string name, const std::function<Answer()>& start);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Sends a request, a word, and waits for its answer. Throws Failure with the status and the
  // message of what the child threw, and Failure(kStepFailed) if it ended without an answer.
  nlohmann::json ask(const std::string& request);

 private:
  // Says how the child ended.
  [[noreturn]] void fail_as_it_ended();

  std::string name_;
  pid_t child_ = -1;
  int requests_ = -1;
  int answers_ = -1;
  std::string received_;
};

}  // namespace aten_recompute::command
