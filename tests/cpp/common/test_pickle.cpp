// pickle_of(): JSON as a pickle of protocol 4.
#include "common/pickle.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace aten_recompute {
namespace {

using nlohmann::json;

// The operations between those that begin and end each pickle.
std::string body(const json& value) {
  const auto bytes = pickle_of(value);
  EXPECT_EQ(bytes.substr(0, 2), "\x80\x04");
  EXPECT_EQ(bytes.back(), '.');
  return bytes.substr(2, bytes.size() - 3);
}

std::string bytes(const char* text, size_t size) {
  return {text, size};
}

TEST(Pickle, HasNumbersOfEachSize) {
  EXPECT_EQ(body(1), bytes("J\x01\0\0\0", 5));
  EXPECT_EQ(body(-2), "J\xfe\xff\xff\xff");
  EXPECT_EQ(body(uint64_t{300}), bytes("J\x2c\x01\0\0", 5));
  EXPECT_EQ(body(int64_t{0x7f0000000001}), bytes("\x8a\x08\x01\0\0\0\0\x7f\0\0", 10));
  EXPECT_EQ(body(1.5), bytes("G\x3f\xf8\0\0\0\0\0\0", 9));
  EXPECT_EQ(body(true), "\x88");
  EXPECT_EQ(body(false), "\x89");
  EXPECT_EQ(body(nullptr), "N");
}

TEST(Pickle, HasTextsListsAndDictionariesInEachOther) {
  EXPECT_EQ(body("ab"), bytes("X\x02\0\0\0ab", 7));
  EXPECT_EQ(body(json::array()), "]");
  EXPECT_EQ(body(json::object()), "}");
  EXPECT_EQ(body(json{{"k", {true, nullptr}}}), bytes("}(X\x01\0\0\0k](\x88Neu", 14));
}

TEST(Pickle, RefusesWhatItCannotWrite) {
  EXPECT_THROW(pickle_of(UINT64_MAX), std::out_of_range);
  EXPECT_THROW(pickle_of(json::binary({1})), std::invalid_argument);
}

}  // namespace
}  // namespace aten_recompute
