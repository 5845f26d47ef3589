#include "common/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <utility>

#include "common/environment.h"

namespace aten_recompute {
namespace {

constexpr auto kBeforeTheFirst = std::chrono::seconds(1);
constexpr auto kBetween = std::chrono::milliseconds(100);

// Whether an object of this process may draw: one line has room for one bar.
std::atomic<bool> is_taken{false};

bool may_draw() {
  return isatty(STDERR_FILENO) != 0 && !environment_is("RECOMPUTE_PROGRESS", "0") &&
         !is_taken.exchange(true);
}

size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)), is_on_(may_draw()) {
  if (!is_on_)
    return;
  try {
    thread_ = std::thread([this] { draw_repeatedly(); });
  } catch (const std::system_error&) {  // near a limit of memory or of processes
    is_on_ = false;
    is_taken = false;
  }
}

Progress::~Progress() {
  if (!is_on_)
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  is_over_changed_.notify_one();
  thread_.join();
  if (is_drawn_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
  is_taken = false;
}

void Progress::set(double share, const std::string& now) {
  if (!is_on_)
    return;
  const std::lock_guard<std::mutex> lock(mutex_);
  share_ = share;
  now_ = now;
  is_new_ = true;
}

void Progress::advance(double share) {
  if (!is_on_)
    return;
  const std::lock_guard<std::mutex> lock(mutex_);
  share_ += share;
  is_new_ = true;
}

void Progress::draw_repeatedly() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_over = [&] { return is_over_; };
  if (is_over_changed_.wait_for(lock, kBeforeTheFirst, is_over))
    return;
  do {
    if (std::exchange(is_new_, false))
      draw();
  } while (!is_over_changed_.wait_for(lock, kBetween, is_over));
}

void Progress::draw() {
  constexpr size_t kWidth = 30;
  const auto share = std::clamp(share_, 0.0, 1.0);
  const auto done = static_cast<size_t>(std::lround(share * kWidth));
  char percent[16];
  std::snprintf(percent, sizeof(percent), "] %3.0f %%", 100.0 * share);
  auto line = "aten_recompute: " + what_ + " [" + std::string(done, '#') +
              std::string(kWidth - done, '-') + percent;
  if (!now_.empty())
    line += "  " + now_;
  // A line that wraps could not be taken back.
  line.resize(std::min(line.size(), columns() - 1));
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
  is_drawn_ = true;
}

}  // namespace aten_recompute
