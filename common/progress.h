// A bar on the terminal for work that a user waits for.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

namespace aten_recompute {

// Shows how far some work is, from one second after the object was made until it is destroyed, in
// the last line of the terminal:
//
//   aten_recompute: profile [#########---------------------]  30 %  aten::conv2d of layer2.0
//
// Nothing is shown where standard error is no terminal, or where RECOMPUTE_PROGRESS is 0. Of
// several objects at once, the first is shown. Thread-safe.
class Progress {
 public:
  // `what`: one word for the work.
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Returns whether anything may be shown, so that texts need not be made otherwise.
  bool is_on() const { return is_on_; }
  // Sets the share that is done, in [0, 1], and what is being done.
  void set(double share, const std::string& now = "");
  // Adds to the share that is done.
  void advance(double share);

 private:
  using Clock = std::chrono::steady_clock;
  // Needs mutex_ to be held.
  void draw();

  const std::string what_;
  bool is_on_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
  std::mutex mutex_;
  double share_ = 0.0;
  std::string now_;
  bool is_drawn_ = false;
};

}  // namespace aten_recompute
