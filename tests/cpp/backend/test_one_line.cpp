// Errors of LibTorch and of lowered modules, as C++ programs see them, in one line.
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>
#include <torch/csrc/jit/serialization/import.h>

#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using torch::jit::Module;

class OneLine : public test::TorchTest {};

std::string line_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return one_line(error);
  }
  return "nothing was thrown";
}

TEST_F(OneLine, ABudgetThatCannotBeKeptBeginsWithThePrefix) {
  auto lowered = lower(test::make_model(), R"({"strategy": "budget", "memory_budget": 2})");
  EXPECT_THAT(line_of([&] {
                lowered.forward({at::randn({8, 4})});
              }),
              AllOf(StartsWith("aten_recompute: memory_budget: the peak cannot be kept under 2 "),
                    Not(HasSubstr("\n"))));
}

TEST_F(OneLine, AnErrorOfAnOperatorIsItsFirstLine) {
  auto model = test::make_model();
  auto lowered = lower(model, R"({"strategy": "all"})");
  for (auto* module : {&model, &lowered}) {
    EXPECT_THAT(line_of([&] {
                  module->forward({at::randn({8, 5})});
                }),
                AllOf(HasSubstr("mat1 and mat2 shapes cannot be multiplied (8x5 and 4x4)"),
                      Not(HasSubstr("Traceback")), Not(HasSubstr("\n"))));
  }
}

TEST_F(OneLine, AFileThatIsNoModule) {
  std::istringstream file("no archive");
  EXPECT_THAT(line_of([&] { torch::jit::load(file); }),
              AllOf(HasSubstr("failed reading zip archive"), Not(HasSubstr("miniz")),
                    Not(HasSubstr("\n"))));
}

TEST_F(OneLine, OtherErrorsAreTheirFirstLine) {
  EXPECT_EQ(one_line(std::runtime_error("first\nsecond")), "first");
  EXPECT_EQ(one_line(std::runtime_error("\n\nthird")), "third");
  EXPECT_EQ(one_line(std::runtime_error("")), "");
  EXPECT_EQ(line_of([] { TORCH_CHECK(false, "checked\nmore"); }), "checked");
}

// The interpreter's text where the source of a method has lines like those of errors.
TEST_F(OneLine, SourceIsNotTakenForTheCause) {
  const std::string header = "The following operation failed in the TorchScript interpreter.\n";
  EXPECT_EQ(one_line(std::runtime_error(header + "Traceback of TorchScript (most recent call "
                                                 "last):\nx: int = 3\n  ~~ <--- HERE\n"
                                                 "RuntimeError: the cause\nNote: advice\n")),
            "the cause");
  EXPECT_EQ(one_line(std::runtime_error(header +
                                        "Traceback of TorchScript (most recent call "
                                        "last):\nRuntimeError: " +
                                        header +
                                        "Traceback of TorchScript (most recent call "
                                        "last):\nKeyError: 'a'\n")),
            "KeyError: 'a'");
}

}  // namespace
}  // namespace aten_recompute
