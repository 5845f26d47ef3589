// Gives changed texts to what reads options, plan files and planning problems.
//
//   aten_recompute_hostile spec|plan|problem CORPUS [SECONDS [SEED]]
//
// CORPUS is a folder with the texts that are changed. A text has to be refused with an error for
// users, or accepted and then used without harm; what that means, judge() says for each kind. The
// process may take 512 MiB, and each text ten seconds. The text that breaks a rule is written to
// hostile-input in the present folder, and the exit status is 1, or that of the signal.

#include <aten_recompute/errors.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/parse_options.h"
#include "planner/model/explain_peak.h"
#include "planner/model/plan_file.h"
#include "planner/model/problem_json.h"
#include "planner/model/step_blocks.h"
#include "planner/search/search.h"
#include "tests/hostile/mutate.h"

namespace aten_recompute::hostile {
namespace {

constexpr rlim_t kMostMemory = rlim_t{512} << 20;  // bytes
constexpr time_t kMostSeconds = 10;                // of the processor, for one text

// What a signal handler writes to a file.
const char* input_now = nullptr;
size_t input_size = 0;

void write_input() {
  const int file = open("hostile-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0)
    return;
  [[maybe_unused]] const auto written = write(file, input_now, input_size);
  close(file);
}

void die(int signal) {
  write_input();
  const std::string_view text =
      signal == SIGPROF ? "a text takes more than ten seconds\n" : "a text ends the process\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void watch_signals() {
  // The stack itself may be what is used up.
  static std::vector<char> memory(1 << 16);
  stack_t stack{};
  stack.ss_sp = memory.data();
  stack.ss_size = memory.size();
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = die;
  action.sa_flags = SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGPROF})
    sigaction(signal, &action, nullptr);
}

// The machine may be busy with other things, so only the time of this process counts.
void set_timer(time_t seconds) {
  itimerval time{};
  time.it_value.tv_sec = seconds;
  setitimer(ITIMER_PROF, &time, nullptr);
}

struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};

void require(bool holds, const char* what) {
  if (!holds)
    throw Broken(what);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> read_corpus(const std::filesystem::path& folder,
                                     const std::string& extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension)
      paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths)
    texts.push_back(read_file(path));
  if (texts.empty())
    throw std::runtime_error(folder.string() + " has no file with the ending " + extension);
  return texts;
}

// Options that are accepted mean the same after they are written and read.
void judge_spec(const std::string& text) {
  const auto options = to_json(parse_options(text));
  require(to_json(parse_options(options)) == options, "options change when they are written");
}

bool runs_the_same(const Problem& problem, const RetentionPlan& a, const RetentionPlan& b) {
  Simulator simulator(problem);
  const auto steps_of = [&](const RetentionPlan& plan) {
    simulator.run(plan);
    std::vector<std::pair<int32_t, int32_t>> steps;
    for (const auto& step : simulator.steps())
      steps.emplace_back(step.node, step.slot);
    return steps;
  };
  return steps_of(a) == steps_of(b);
}

// A plan that is accepted runs the steps that it says, however often it is written and read.
void judge_plan(const Problem& problem, const std::string& text) {
  const auto plan = plan_from_file(problem, text);
  const auto again = plan_file({plan_to_json(problem, plan)});
  require(runs_the_same(problem, plan, plan_from_file(problem, again)),
          "a plan runs other steps when it is written and read again");
}

// A problem that is accepted can be simulated, planned for, and taken apart.
void judge_problem(const std::string& text) {
  const auto problem = problem_from_json(text);
  require(to_json(problem_from_json(to_json(problem))) == to_json(problem),
          "a problem changes when it is written");
  Simulator simulator(problem);
  const auto keeps = keep_what_is_read(problem);
  const auto peak = simulator.run(keeps).peak_bytes;
  require(peak >= 0, "a peak is negative");
  walk_step(problem, keeps);
  const auto operation = peak_operator(problem, simulator.peak(simulator.run(keeps)));
  require(operation.operand_bytes >= 0, "the operands at a peak have negative bytes");
  const SearchEffort effort{0.0, 2000, 2000, 200, 1};
  PlanSearch search(problem, keeps, effort);
  require(search.smallest_peak_bytes() <= peak, "the search finds nothing as good as no plan");
  const auto plan = search.fastest(peak);
  require(plan.has_value(), "the search loses the plan that keeps everything");
  judge_plan(problem, plan_file({plan_to_json(problem, plan->retention)}));
}

std::function<void(const std::string&)> judge_of(const std::string& kind,
                                                 const std::filesystem::path& corpus) {
  if (kind == "spec")
    return judge_spec;
  if (kind == "problem")
    return judge_problem;
  if (kind != "plan")
    throw std::runtime_error("\"" + kind + "\" is no kind; there are spec, plan and problem");
  const auto problem = problem_from_json(read_file(corpus / "of.problem"));
  return [problem](const std::string& text) { judge_plan(problem, text); };
}

int run(const std::string& kind, const std::string& corpus, double seconds, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto judge = judge_of(kind, corpus);
  Mutator mutator(read_corpus(corpus, ".json"), seed);
  // Without its own address space, AddressSanitizer could not work.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{kMostMemory, kMostMemory};
  setrlimit(RLIMIT_AS, &limit);
#endif
  watch_signals();
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  size_t count = 0, accepted = 0, problems = 0;
  for (; passed() < seconds; ++count) {
    const auto text = mutator.next();
    input_now = text.data();
    input_size = text.size();
    set_timer(kMostSeconds);
    try {
      judge(text);
      ++accepted;
    } catch (const Broken& broken) {
      ++problems;
      std::fprintf(stderr, "%s: %s\n", kind.c_str(), broken.what());
    } catch (const std::bad_alloc&) {
      ++problems;
      std::fprintf(stderr, "%s: a text takes more than 512 MiB\n", kind.c_str());
    } catch (const std::invalid_argument& error) {
      const std::string_view message = error.what();
      if (message.empty() || message.find('\n') != message.npos) {
        ++problems;
        std::fprintf(stderr, "%s: an error is not one line: %s\n", kind.c_str(), error.what());
      }
    } catch (const std::exception& error) {
      ++problems;
      std::fprintf(stderr, "%s: an error that is not for users: %s\n", kind.c_str(), error.what());
    }
    set_timer(0);
    if (problems > 0) {
      write_input();
      break;
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "%s: %zu inputs in %.1f s, %.0f per second, %zu accepted, at most %ld MiB, seed %llu\n",
      kind.c_str(), count, passed(), static_cast<double>(count) / passed(), accepted,
      usage.ru_maxrss / 1024, static_cast<unsigned long long>(seed));
  return problems > 0 ? 1 : 0;
}

}  // namespace
}  // namespace aten_recompute::hostile

int main(int argc, char** argv) {
  constexpr double kSeconds = 5.0;
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s spec|plan|problem CORPUS [SECONDS [SEED]]\n", argv[0]);
    return 2;
  }
  try {
    return aten_recompute::hostile::run(argv[1], argv[2], argc > 3 ? std::atof(argv[3]) : kSeconds,
                                        argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
