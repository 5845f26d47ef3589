// Trains a torch::nn network in C++ twice, as it is and planned, with the same data and the same
// random numbers. Both have the same losses and parameters, to the last bit; the second needs less
// memory. There is no Python in the process.
//
//   cpp_torch_nn [steps] [memory budget, a fraction]

#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/trace_and_lower.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))),
        dropout(register_module("dropout", torch::nn::Dropout(0.1))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return x + dropout(down(torch::gelu(up(norm(x)))));
  }

  torch::nn::BatchNorm1d norm;
  torch::nn::Linear up, down;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t width, std::int64_t depth) : head(width, 1) {
    blocks = register_module("blocks", torch::nn::Sequential());
    for (std::int64_t i = 0; i < depth; ++i)
      blocks->push_back(Block(width));
    register_module("head", head);
  }

  torch::Tensor forward(const torch::Tensor& x) { return head(blocks->forward(x)); }

  torch::nn::Sequential blocks;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

// Trains the network and returns the losses.
std::vector<double> train(Net& net, const Forward& forward, std::int64_t steps) {
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  torch::manual_seed(1);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto x = torch::randn({512, 64});
    const auto y = x.square().sum(1, /*keepdim=*/true) / 64;
    optimizer.zero_grad();
    auto loss = torch::mse_loss(forward(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// Returns the first number of this name in a report, which is JSON.
double mebibytes(const std::string& report, const std::string& name) {
  const auto place = report.find('"' + name + '"');
  return place == std::string::npos
             ? 0.0
             : std::stod(report.substr(report.find(':', place) + 1)) / (1 << 20);
}

bool are_equal(const Net& a, const Net& b) {
  const auto of_a = a->named_parameters();
  const auto of_b = b->named_parameters();
  for (const auto& item : of_a) {
    if (!torch::equal(item.value(), of_b[item.key()]))
      return false;
  }
  const auto buffers = b->named_buffers();
  for (const auto& item : a->named_buffers()) {
    if (!torch::equal(item.value(), buffers[item.key()]))
      return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::int64_t steps = argc > 1 ? std::stoll(argv[1]) : 20;
  const std::string budget = argc > 2 ? argv[2] : "0.5";
  torch::set_num_threads(1);  // sums are added in one order

  torch::manual_seed(0);
  Net plain(64, 6);
  torch::manual_seed(0);
  Net net(64, 6);

  const auto planned = aten_recompute::trace_and_lower(
      [net](std::vector<c10::IValue> inputs) mutable -> c10::IValue {
        return net->forward(inputs[0].toTensor());
      },
      {torch::randn({512, 64})},
      R"({"strategy": "budget", "cost_model": "flops", "memory_budget": )" + budget + "}",
      {net.ptr()});

  const auto expected = train(
      plain, [&](const torch::Tensor& x) { return plain->forward(x); }, steps);
  const auto losses = train(
      net, [&](const torch::Tensor& x) { return planned({x}).toTensor(); }, steps);

  std::printf("loss %.6f -> %.6f in %lld steps; eager: %.6f -> %.6f\n", losses.front(),
              losses.back(), static_cast<long long>(steps), expected.front(), expected.back());
  if (losses != expected || !are_equal(plain, net)) {
    std::fputs("the planned network is not the eager one\n", stderr);
    return 1;
  }
  const auto report = aten_recompute::report(planned.modules().front());
  std::printf(
      "losses, parameters and statistics are equal to the last bit; the peak of a step is %.1f MiB "
      "in place of %.1f\n",
      mebibytes(report, "predicted_peak_bytes"), mebibytes(report, "unplanned_peak_bytes"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", aten_recompute::one_line(error).c_str());
  return 1;
}
