// Measures how long planning takes as graphs grow: one simulation, and a search.
//
//   build/planner_benchmark --benchmark_filter='/2000'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/model/problem_builder.h"
#include "planner/model/simulator.h"
#include "planner/search/search.h"

namespace aten_recompute {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// A chain of transformer blocks. Every forward node has one backward node, which reads the gradient
// of the forward node's output and those forward values that the operator's gradient needs. A
// profile runs one node of each class, so equal blocks have equal costs; with `num_kinds` above 1,
// blocks take turns in that many sizes.
class BlocksBuilder {
 public:
  explicit BlocksBuilder(size_t num_nodes, size_t num_kinds) : num_kinds_(num_kinds) {
    auto value = builder_.add_value("x", {builder_.add_storage(4, /*held=*/true)});
    size_t block = 0;
    while (2 * (forward_.size() + kBlockNodes) <= num_nodes || block == 0)
      value = add_block(value, block++);
    builder_.add_result(value);
    builder_.start_backward();
    add_backward(value);
  }

  Problem build() const {
    auto problem = builder_.build();
    problem.loss_bytes = problem.incoming_bytes();
    return problem;
  }

 private:
  static constexpr size_t kBlockNodes = 16;

  enum class Reads { kNothing, kInputs, kOutput };

  struct Forward {
    int32_t output;
    std::vector<int32_t> inputs;
    Reads reads;
    int64_t bytes;
    double seconds;
  };

  int32_t add_block(int32_t x, size_t block) {
    const auto factor = 1.0 + 0.1 * static_cast<double>(block % num_kinds_);
    auto op = [&](const char* name, std::vector<int32_t> inputs, int64_t mebibytes,
                  double milliseconds, Reads reads) {
      return forward(name, std::move(inputs),
                     static_cast<int64_t>(static_cast<double>(mebibytes * kMebibyte) * factor),
                     1e-3 * milliseconds * factor, reads);
    };
    const auto norm1 = op("norm", {x}, 4, 0.3, Reads::kInputs);
    const auto q = op("linear", {norm1}, 4, 2.0, Reads::kInputs);
    const auto k = op("linear", {norm1}, 4, 2.0, Reads::kInputs);
    const auto v = op("linear", {norm1}, 4, 2.0, Reads::kInputs);
    const auto scores = op("matmul", {q, k}, 12, 1.5, Reads::kInputs);
    const auto scaled = op("div", {scores}, 12, 0.6, Reads::kNothing);
    const auto weights = op("softmax", {scaled}, 12, 1.2, Reads::kOutput);
    const auto mixed = op("matmul", {weights, v}, 4, 1.5, Reads::kInputs);
    const auto projected = op("linear", {mixed}, 4, 2.0, Reads::kInputs);
    const auto sum1 = op("add", {x, projected}, 4, 0.2, Reads::kNothing);
    const auto norm2 = op("norm", {sum1}, 4, 0.3, Reads::kInputs);
    const auto wide = op("linear", {norm2}, 16, 8.0, Reads::kInputs);
    const auto gelu = op("gelu", {wide}, 16, 1.6, Reads::kInputs);
    const auto narrow = op("linear", {gelu}, 4, 8.0, Reads::kInputs);
    const auto dropped = op("mul", {narrow}, 4, 0.3, Reads::kNothing);
    return op("add", {sum1, dropped}, 4, 0.2, Reads::kNothing);
  }

  void add_backward(int32_t last) {
    std::vector<int32_t> gradients(static_cast<size_t>(last) + 1, -1);
    gradients[last] = builder_.add_incoming("gradient", {builder_.add_storage(bytes_of(last))});
    for (size_t i = forward_.size(); i-- > 0;) {
      const auto& node = forward_[i];
      std::vector<int32_t> reads{gradients[node.output]};
      std::vector<int64_t> sizes;
      for (auto input : node.inputs) {
        if (node.reads == Reads::kInputs)
          reads.push_back(input);
        sizes.push_back(bytes_of(input));
        // The node adds to a gradient that exists already, so sums need no nodes of their own.
        if (static_cast<size_t>(input) < gradients.size() && gradients[input] >= 0)
          reads.push_back(gradients[input]);
      }
      if (node.reads == Reads::kOutput)
        reads.push_back(node.output);
      const auto made = add_node("backward", reads, sizes, 2.0 * node.seconds, false);
      for (size_t k = 0; k < made.size(); ++k)
        gradients[node.inputs[k]] = made[k];
      if (i == 0)
        builder_.add_result(made[0]);
    }
  }

  int64_t bytes_of(int32_t value) const {
    return builder_.storage_bytes(builder_.storages(value)[0]);
  }

  int32_t forward(const char* name, std::vector<int32_t> inputs, int64_t bytes, double seconds,
                  Reads reads) {
    const auto output = add_node(name, inputs, {bytes}, seconds, true).front();
    forward_.push_back({output, std::move(inputs), reads, bytes, seconds});
    return output;
  }

  std::vector<int32_t> add_node(const char* name, const std::vector<int32_t>& inputs,
                                const std::vector<int64_t>& sizes, double seconds,
                                bool recomputable) {
    const auto node = builder_.add_node(
        {.name = name, .inputs = inputs, .seconds = seconds, .recomputable = recomputable});
    std::vector<int32_t> made;
    for (auto size : sizes)
      made.push_back(builder_.add_output(node, name, {builder_.add_storage(size)}));
    return made;
  }

  size_t num_kinds_;
  ProblemBuilder builder_;
  std::vector<Forward> forward_;
};

Problem blocks(size_t num_nodes, size_t num_kinds = 1) {
  return BlocksBuilder(num_nodes, num_kinds).build();
}

// Simulates a plan that drops every other value, because schedules of plans lie between the
// extremes of dropping nothing and everything.
void BM_Simulate(benchmark::State& state) {
  const auto problem = blocks(static_cast<size_t>(state.range(0)));
  Simulator simulator(problem);
  auto plan = keep_what_is_read(problem);
  for (size_t i = 0; i < simulator.droppable().size(); i += 2)
    plan.drop(simulator.droppable()[i], 0);
  for (auto _ : state)
    benchmark::DoNotOptimize(simulator.run(plan).peak_bytes);
  state.counters["nodes"] = static_cast<double>(problem.num_nodes);
  state.SetComplexityN(static_cast<int64_t>(problem.num_nodes));
}

// A search finds plans for all budgets at once; the time does not depend on the one asked for.
void BM_Search(benchmark::State& state, size_t num_kinds, size_t num_threads) {
  constexpr double kBudget = 0.5;
  const auto problem = blocks(static_cast<size_t>(state.range(0)), num_kinds);
  const auto unplanned = keep_what_is_read(problem);
  const auto peak = Simulator(problem).run(unplanned).peak_bytes;
  const auto limit = static_cast<int64_t>(kBudget * static_cast<double>(peak));
  for (auto _ : state) {
    PlanSearch search(problem, unplanned, SearchEffort{.num_threads = num_threads});
    const auto plan = search.fastest(limit);
    if (!plan) {
      state.SkipWithError("no plan is that small");
      return;
    }
    state.counters["recompute"] = plan->simulation.recompute_seconds / problem.base_seconds();
  }
  state.counters["nodes"] = static_cast<double>(problem.num_nodes);
  state.SetComplexityN(static_cast<int64_t>(problem.num_nodes));
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  for (int64_t nodes : {100, 300, 1000, 2000, 5000, 10000})
    benchmark->Arg(nodes);
}

BENCHMARK(BM_Simulate)->Apply(sizes)->Unit(benchmark::kMicrosecond)->Complexity();
// A search takes seconds, so it runs once.
void searches(benchmark::internal::Benchmark* benchmark) {
  benchmark->Apply(sizes)
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1)
      ->UseRealTime()
      ->Complexity();
}

BENCHMARK_CAPTURE(BM_Search, equal_blocks, 1, 1)->Apply(searches);
BENCHMARK_CAPTURE(BM_Search, equal_blocks_two_threads, 1, 2)->Apply(searches);
BENCHMARK_CAPTURE(BM_Search, five_kinds, 5, 1)->Apply(searches);
BENCHMARK_CAPTURE(BM_Search, five_kinds_two_threads, 5, 2)->Apply(searches);

}  // namespace
}  // namespace aten_recompute

BENCHMARK_MAIN();
