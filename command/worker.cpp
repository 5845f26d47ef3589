#include "command/worker.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "command/failure.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

// Reads up to the next line break; nullopt at the end of the file. `received` holds what follows.
std::optional<std::string> read_line(int file, std::string& received) {
  for (size_t end; (end = received.find('\n')) == received.npos;) {
    std::array<char, 4096> piece{};
    const auto count = read(file, piece.data(), piece.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return std::nullopt;
    received.append(piece.data(), static_cast<size_t>(count));
  }
  const auto end = received.find('\n');
  auto line = received.substr(0, end);
  received.erase(0, end + 1);
  return line;
}

bool write_line(int file, std::string line) {
  line += '\n';
  for (std::string_view left = line; !left.empty();) {
    const auto count = write(file, left.data(), left.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    left.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Runs in the child until there are no more requests, or one fails. The first answer is that of the
// start.
void serve(int requests, int answers, const std::function<Answer()>& start) {
  json reply = json::object();
  try {
    const auto answer = start();
    std::string received;
    for (;;) {
      if (!write_line(answers, reply.dump()))
        return;
      const auto request = read_line(requests, received);
      if (!request)
        return;
      reply = answer(*request);
    }
  } catch (const std::exception& error) {
    reply = {{"error", message_of(error)}, {"status", static_cast<int>(status_of(error))}};
  }
  write_line(answers, reply.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

Worker::Worker(std::string name, const std::function<Answer()>& start) : name_(std::move(name)) {
  std::array<int, 2> requests{}, answers{};
  if (pipe(requests.data()) != 0 || pipe(answers.data()) != 0)
    throw Failure(Exit::kStepFailed, std::string("a pipe cannot be made: ") + std::strerror(errno));
  std::fflush(nullptr);
  const auto parent = getpid();
  child_ = fork();
  if (child_ < 0)
    throw Failure(Exit::kStepFailed,
                  std::string("a process cannot be started: ") + std::strerror(errno));
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(requests[1]);
    close(answers[0]);
    if (getppid() == parent)
      serve(requests[0], answers[1], start);
    std::_Exit(0);
  }
  close(requests[0]);
  close(answers[1]);
  requests_ = requests[1];
  answers_ = answers[0];
  std::signal(SIGPIPE, SIG_IGN);  // a child that is gone has no answer
}

Worker::~Worker() {
  close(requests_);
  close(answers_);
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
}

json Worker::ask(const std::string& request) {
  if (!request.empty() && !write_line(requests_, request))
    fail_as_it_ended();
  const auto line = read_line(answers_, received_);
  if (!line)
    fail_as_it_ended();
  auto answer = json::parse(*line);
  if (answer.contains("error"))
    throw Failure(static_cast<Exit>(answer["status"].get<int>()),
                  answer["error"].get<std::string>());
  return answer;
}

void Worker::fail_as_it_ended() {
  int status = 0;
  waitpid(std::exchange(child_, -1), &status, 0);
  throw Failure(Exit::kStepFailed, "the process of the " + name_ + " step " +
                                       (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                            ? "was killed, perhaps because memory ran out"
                                        : WIFSIGNALED(status) ? std::string("ended by signal: ") +
                                                                    strsignal(WTERMSIG(status))
                                                              : "ended without an answer"));
}

}  // namespace aten_recompute::command
