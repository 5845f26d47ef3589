// Runs an interatomic potential for systems of changing sizes under a memory budget, as a program
// for molecular dynamics does, without Python in the process.
//
//   cpp_forces potential.pt --budget 600MiB --calls 100
//   cpp_forces                                            # with a small potential of its own
//
//   potential.pt   written by torch.jit.script(...).save(): forward(positions) -> (energy, forces),
//                  with positions of shape (atoms, 3); forces are a gradient inside of it
//
// Each line has the number of atoms, the energy, and the memory of the process. The first calls are
// compared with the potential as it was loaded.

#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/one_line.h>
#include <torch/script.h>
#include <torch/utils.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

constexpr std::int64_t kCompared = 3;  // calls

struct Options {
  std::string path;
  std::string budget = "256MiB";
  std::int64_t calls = 20;
  std::int64_t smallest = 50;
  std::int64_t largest = 400;
};

// A pair potential whose terms a small network computes.
torch::jit::Module make_potential() {
  torch::jit::Module module("PairPotential");
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    module.register_parameter(name, 0.3 * torch::randn(sizes), /*is_buffer=*/false);
  };
  add("first", {32, 8});
  add("second", {1, 32});
  module.define(R"(
def forward(self, positions):
    positions.requires_grad_(True)
    offsets = positions.unsqueeze(0) - positions.unsqueeze(1)
    distances = (offsets.pow(2).sum(-1) + 0.01).sqrt()
    basis = torch.exp(-(distances.unsqueeze(-1) - torch.arange(8)).pow(2))
    hidden = torch.tanh(torch.matmul(basis, self.first.t()))
    energy = torch.matmul(hidden, self.second.t()).sum()
    gradient = torch.autograd.grad([energy], [positions])[0]
    assert gradient is not None
    return energy, -gradient
)");
  return module;
}

torch::jit::Module load(const std::string& path) {
  if (!std::ifstream(path))
    throw std::runtime_error("cannot open " + path);
  try {
    return torch::jit::load(path);
  } catch (const std::exception& error) {
    throw std::runtime_error(
        path + " is not a module that can be loaded: " + aten_recompute::one_line(error));
  }
}

std::pair<at::Tensor, at::Tensor> run(torch::jit::Module& potential, const at::Tensor& positions) {
  const auto result = potential.forward({positions.clone()}).toTuple();
  return {result->elements().at(0).toTensor().detach(), result->elements().at(1).toTensor()};
}

// Returns the memory of the process in MiB; 0 where the system does not tell.
double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0.0;
  statm >> pages >> pages;
  return pages * 4096.0 / (1 << 20);
}

void simulate(const Options& options) {
  torch::manual_seed(0);
  auto potential = options.path.empty() ? make_potential() : load(options.path);
  potential.eval();
  for (const auto& parameter : potential.parameters())
    at::Tensor(parameter).requires_grad_(false);  // nothing is trained
  auto lowered = aten_recompute::lower(
      potential, R"({"strategy": "budget", "memory_budget": ")" + options.budget + R"("})");
  for (std::int64_t call = 0; call < options.calls; ++call) {
    const auto atoms =
        torch::randint(options.smallest, options.largest + 1, {}).item<std::int64_t>();
    const auto positions = 3.0 * torch::randn({atoms, 3});
    const auto [energy, forces] = run(lowered, positions);
    std::printf("%4lld atoms  energy %12.5f  largest force %9.5f  resident %.0f MiB\n",
                static_cast<long long>(atoms), energy.item<double>(),
                forces.abs().max().item<double>(), resident_mib());
    std::fflush(stdout);
    if (call >= kCompared)
      continue;
    const auto [plain_energy, plain_forces] = run(potential, positions);
    if (!at::allclose(energy, plain_energy, 1e-5, 1e-6) ||
        !at::allclose(forces, plain_forces, 1e-5, 1e-6))
      throw std::runtime_error("energy or forces are not those of the potential as it was loaded");
  }
  std::printf("energies and forces of the first calls are those of the potential\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Energies and forces of systems of changing sizes under a memory budget");
  app.add_option("potential", options.path, "A TorchScript file; without it a small potential");
  app.add_option("--budget", options.budget, "Memory that a call may take, such as 600MiB")
      ->capture_default_str();
  app.add_option("--calls", options.calls, "Number of calls")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--smallest", options.smallest, "Fewest atoms of a system")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--largest", options.largest, "Most atoms of a system")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    simulate(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpp_forces: %s\n", aten_recompute::one_line(error).c_str());
    return 1;
  }
  return 0;
}
