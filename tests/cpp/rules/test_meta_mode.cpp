#include "rules/meta_mode.h"

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <vector>

#include "runtime/autograd_modes.h"
#include "runtime/memory_watch.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using at::Tensor;

struct MetaModeCase {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& y)> run;
};

class MetaModeTest : public ::testing::TestWithParam<MetaModeCase> {};

// In a process without Python, some of these have no kernel for meta tensors.
TEST_P(MetaModeTest, GivesTheSizesTypesAndMemoryOfTheCpu) {
  const WithoutAutograd guard;
  const auto x = at::rand({4, 6, 8});
  const auto y = at::rand({4, 8, 6}).transpose(1, 2);
  const auto expected = GetParam().run(x, y);
  MemoryWatch watch;
  const MetaMode mode;
  const auto mx = at::empty_like(x, x.options().device(at::kMeta));
  const auto my = at::empty_strided(y.sizes(), y.strides(), y.options().device(at::kMeta));
  watch.reset();
  const auto result = GetParam().run(mx, my);
  EXPECT_TRUE(result.is_meta());
  EXPECT_EQ(result.sizes(), expected.sizes());
  EXPECT_EQ(result.strides(), expected.strides());
  EXPECT_EQ(result.scalar_type(), expected.scalar_type());
  EXPECT_EQ(watch.alive_bytes(), static_cast<int64_t>(expected.nbytes()));
}

// As a program does that reads a value for the last time.
TEST(MetaModeMemory, AnOperandThatNothingElseHoldsIsCountedBesideTheResult) {
  const WithoutAutograd guard;
  const auto negate =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::neg", /*overload_name=*/"");
  MemoryWatch watch;
  const MetaMode mode;
  watch.reset();
  torch::jit::Stack stack{at::empty({8, 4}, at::TensorOptions().device(at::kMeta))};
  const auto bytes = static_cast<int64_t>(stack[0].toTensor().nbytes());
  negate.callBoxed(stack);
  EXPECT_EQ(watch.peak_bytes(), 2 * bytes);
  EXPECT_EQ(watch.alive_bytes(), bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Operators, MetaModeTest,
    ::testing::Values(
        MetaModeCase{"Add", [](auto& x, auto& y) { return x + y; }},
        MetaModeCase{"Compare", [](auto& x, auto& y) { return x > y; }},
        MetaModeCase{"Relu", [](auto& x, auto& /*y*/) { return at::relu(x); }},
        MetaModeCase{"Gelu", [](auto& x, auto& /*y*/) { return at::gelu(x); }},
        MetaModeCase{"Softmax", [](auto& x, auto& /*y*/) { return at::softmax(x, -1); }},
        MetaModeCase{"Sum", [](auto& x, auto& /*y*/) { return x.sum(1); }},
        MetaModeCase{"Product", [](auto& x, auto& y) { return at::matmul(x, y.transpose(1, 2)); }},
        MetaModeCase{"Concatenate",
                     [](auto& x, auto& y) {
                       return at::cat({x, y}, 1);
                     }},
        MetaModeCase{"Fill", [](auto& x, auto& y) { return x.masked_fill(y > 0, 1.0); }},
        MetaModeCase{"Arange",
                     [](auto& x, auto& /*y*/) {
                       return at::arange(3, 20, 2, at::TensorOptions().device(x.device()));
                     }},
        MetaModeCase{"Copy", [](auto& /*x*/, auto& y) { return y.contiguous(); }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace aten_recompute
