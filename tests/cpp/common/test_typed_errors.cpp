#include "common/typed_errors.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/user_error.h"

namespace aten_recompute {
namespace {

using ::testing::IsNull;
using ::testing::NotNull;

BudgetUnreachableError unreachable(const std::string& message, int64_t limit_bytes) {
  BudgetUnreachableError error(message);
  error.limit_bytes = limit_bytes;
  error.peak_operator.name = "aten::relu";
  return error;
}

int64_t limit_of(const std::shared_ptr<const Error>& error) {
  const auto* budget = dynamic_cast<const BudgetUnreachableError*>(error.get());
  return budget == nullptr ? -1 : budget->limit_bytes;
}

// What TorchScript's interpreter makes of an error with this message.
std::runtime_error as_interpreter_text(const std::string& message) {
  return std::runtime_error(
      "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript "
      "(most recent call last):\n  File \"model.py\", line 3, in forward\nRuntimeError: " +
      message + "\n");
}

TEST(TypedErrors, AnErrorIsCaughtByItsClassItsBaseAndAsAStandardException) {
  const auto error = unreachable("too little", 5);
  EXPECT_THROW(error.raise(), BudgetUnreachableError);
  EXPECT_THROW(error.raise(), Error);
  EXPECT_THROW(error.raise(), UserError);
  EXPECT_THROW(error.raise(), std::runtime_error);
  EXPECT_THROW(error.raise(), std::exception);
  EXPECT_THROW(error.raise_as_invalid_argument(), BudgetUnreachableError);
  EXPECT_THROW(error.raise_as_invalid_argument(), std::invalid_argument);
}

TEST(TypedErrors, TheMessageAndTheFieldsAreThoseOfTheError) {
  try {
    unreachable("too little", 5).raise();
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "too little");
    const auto typed = typed_error(error);
    ASSERT_THAT(typed, NotNull());
    EXPECT_STREQ(typed->type(), "BudgetUnreachableError");
    EXPECT_STREQ(typed->what(), "too little");
    EXPECT_EQ(limit_of(typed), 5);
  }
}

TEST(TypedErrors, ACopyWithAnotherMessageKeepsClassAndFields) {
  const auto copy = unreachable("too little", 5).with_message("far too little");
  EXPECT_STREQ(copy->what(), "far too little");
  EXPECT_EQ(limit_of(copy), 5);
  EXPECT_THROW(copy->raise(), BudgetUnreachableError);
}

TEST(TypedErrors, AnErrorIsFoundInTheTextOfTheInterpreter) {
  EXPECT_THROW(unreachable("text of 7", 7).raise(), Error);
  EXPECT_THROW(unreachable("text of 8", 8).raise(), Error);
  const auto typed = typed_error(as_interpreter_text("aten_recompute: text of 7"));
  EXPECT_EQ(limit_of(typed), 7);
  EXPECT_STREQ(typed->what(), "aten_recompute: text of 7");
}

TEST(TypedErrors, AMessageThatIsNotRememberedGivesAPlainError) {
  const auto typed = typed_error(as_interpreter_text("aten_recompute: nobody said this"));
  ASSERT_THAT(typed, NotNull());
  EXPECT_STREQ(typed->type(), "Error");
  EXPECT_STREQ(typed->what(), "aten_recompute: nobody said this");
}

TEST(TypedErrors, ErrorsOfOthersAreNone) {
  EXPECT_THAT(typed_error(std::runtime_error("sizes differ")), IsNull());
  EXPECT_THAT(typed_error(as_interpreter_text("sizes differ")), IsNull());
  EXPECT_THAT(remembered_error("sizes differ"), IsNull());
}

TEST(TypedErrors, OfEqualMessagesThatOfTheThreadIsFound) {
  EXPECT_THROW(unreachable("equal", 1).raise(), Error);
  std::thread([] {
    EXPECT_EQ(limit_of(remembered_error("equal")), 1);
    EXPECT_THROW(unreachable("equal", 2).raise(), Error);
    EXPECT_EQ(limit_of(remembered_error("equal")), 2);
  }).join();
  EXPECT_EQ(limit_of(remembered_error("equal")), 1);
}

TEST(TypedErrors, OldErrorsAreForgotten) {
  EXPECT_THROW(unreachable("old", 1).raise(), Error);
  for (size_t i = 0; i < kRememberedErrors; ++i)
    EXPECT_THROW(unreachable("new " + std::to_string(i), 1).raise(), Error);
  EXPECT_THAT(remembered_error("old"), IsNull());
  EXPECT_THAT(remembered_error("new 0"), NotNull());
}

}  // namespace
}  // namespace aten_recompute
