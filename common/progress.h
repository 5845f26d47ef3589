// A bar on the terminal for work that a user waits for.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

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
  // Draws every tenth of a second what has changed, so that work that takes long is named while it
  // runs.
  void draw_repeatedly();
  // Needs mutex_ to be held.
  void draw();

  const std::string what_;
  bool is_on_;
  std::mutex mutex_;
  std::condition_variable is_over_changed_;
  bool is_over_ = false;
  bool is_new_ = true;
  double share_ = 0.0;
  std::string now_;
  bool is_drawn_ = false;
  std::thread thread_;  // only where is_on_
};

}  // namespace aten_recompute
