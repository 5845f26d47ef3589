#include "passes/region/autocast_inputs.h"

#include <ATen/Functions.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

TEST(DeviceOf, ATensorOnTheCpuDoesNotHideTheDevice) {
  const auto number = at::ones({});
  const auto elsewhere = at::ones({2}, at::kMeta);
  EXPECT_EQ(device_of({1, number, elsewhere}), at::kMeta);
  EXPECT_EQ(device_of({at::Tensor(), number}), at::kCPU);
  EXPECT_EQ(device_of({}), at::kCPU);
}

}  // namespace
}  // namespace aten_recompute
