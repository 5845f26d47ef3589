#include "common/progress.h"

#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/no_new_threads.h"
#include "tests/cpp/support/scoped_env.h"

namespace aten_recompute {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Makes standard error a terminal of so many columns, while it exists.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = columns;
    int terminal = -1;
    if (openpty(&reader_, &terminal, nullptr, nullptr, &size) != 0)
      throw std::runtime_error("there is no pseudoterminal");
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    before_ = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
  }
  ~Terminal() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(reader_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns what is written next, at the latest after ten seconds.
  std::string read_next() const {
    for (int i = 0; i < 1000; ++i) {
      if (auto text = read_all(); !text.empty())
        return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "";
  }
  // Returns what was written since the last call.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> part{};
    for (ssize_t size = 0; (size = read(reader_, part.data(), part.size())) > 0;)
      text.append(part.data(), static_cast<size_t>(size));
    return text;
  }

 private:
  int reader_ = -1;
  int before_ = -1;
};

void wait_for_more_than_a_second() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
}

TEST(Progress, IsShownAfterASecondAndTakenBack) {
  const Terminal terminal(80);
  {
    Progress progress("profile");
    progress.set(0.1, "aten::mm");
    EXPECT_EQ(terminal.read_all(), "");
    progress.set(0.3, "aten::conv2d");
    progress.advance(0.2);
    wait_for_more_than_a_second();
    EXPECT_EQ(
        terminal.read_all(),
        "\raten_recompute: profile [###############---------------]  50 %  aten::conv2d\033[K");
    progress.set(1.2, "aten::relu");
    EXPECT_THAT(terminal.read_next(),
                HasSubstr("[##############################] 100 %  aten::relu"));
  }
  EXPECT_EQ(terminal.read_all(), "\r\033[K");
}

TEST(Progress, FitsTheLine) {
  const Terminal terminal(40);
  Progress progress("search");
  progress.set(0.5, std::string(100, 'x'));
  EXPECT_EQ(terminal.read_next(), "\raten_recompute: search [###############\033[K");
}

TEST(Progress, OnlyOneIsShown) {
  const Terminal terminal(80);
  Progress outer("profile");
  Progress inner("search");
  EXPECT_TRUE(outer.is_on());
  EXPECT_FALSE(inner.is_on());
  inner.set(0.5);
  wait_for_more_than_a_second();
  EXPECT_THAT(terminal.read_all(), Not(HasSubstr("search")));
}

TEST(Progress, IsSwitchedOffByTheEnvironment) {
  const Terminal terminal(80);
  test::ScopedEnv environment;
  environment.set("RECOMPUTE_PROGRESS", "0");
  Progress progress("profile");
  progress.set(0.5);
  wait_for_more_than_a_second();
  EXPECT_FALSE(progress.is_on());
  EXPECT_EQ(terminal.read_all(), "");
}

TEST(Progress, IsOffWhereNoThreadStarts) {
  const Terminal terminal(80);
  {
    const test::NoNewThreads no_threads;
    EXPECT_FALSE(Progress("profile").is_on());
  }
  EXPECT_TRUE(Progress("profile").is_on());
}

TEST(Progress, NeedsATerminal) {
  const auto before = dup(STDERR_FILENO);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  dup2(ends[1], STDERR_FILENO);
  EXPECT_FALSE(Progress("profile").is_on());
  dup2(before, STDERR_FILENO);
  for (auto end : {ends[0], ends[1], before})
    close(end);
}

}  // namespace
}  // namespace aten_recompute
