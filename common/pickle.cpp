#include "common/pickle.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace aten_recompute {
namespace {

using nlohmann::json;

// The format's operations that are needed.
constexpr char kProtocol[] = "\x80\x04";
constexpr char kStop = '.', kMark = '(', kEmptyDict = '}', kSetItems = 'u', kEmptyList = ']',
               kAppends = 'e', kNone = 'N', kTrue = '\x88', kFalse = '\x89', kInt32 = 'J',
               kInteger = '\x8a', kFloat = 'G', kText = 'X';

class Pickler {
 public:
  std::string finish(const json& value) {
    bytes_ = kProtocol;
    append(value);
    bytes_ += kStop;
    return std::move(bytes_);
  }

 private:
  // The lowest `count` bytes of a number, the lowest one first.
  void append_little_endian(uint64_t number, int count) {
    for (int i = 0; i < count; ++i)
      bytes_ += static_cast<char>(number >> (8 * i) & 0xff);
  }

  void append_text(const std::string& text) {
    if (text.size() > std::numeric_limits<uint32_t>::max())
      throw std::length_error("a text of more than 4 GiB cannot be written as a pickle");
    bytes_ += kText;
    append_little_endian(text.size(), 4);
    bytes_ += text;
  }

  void append_integer(int64_t number) {
    if (number >= std::numeric_limits<int32_t>::min() &&
        number <= std::numeric_limits<int32_t>::max()) {
      bytes_ += kInt32;
      append_little_endian(static_cast<uint64_t>(number), 4);
    } else {
      bytes_ += kInteger;
      bytes_ += '\x08';
      append_little_endian(static_cast<uint64_t>(number), 8);
    }
  }

  // The highest byte comes first.
  void append_float(double number) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof(bits));
    bytes_ += kFloat;
    for (int i = 7; i >= 0; --i)
      bytes_ += static_cast<char>(bits >> (8 * i) & 0xff);
  }

  void append_items(const json& value) {
    const bool is_dict = value.is_object();
    bytes_ += is_dict ? kEmptyDict : kEmptyList;
    if (value.empty())
      return;
    bytes_ += kMark;
    for (const auto& [key, item] : value.items()) {
      if (is_dict)
        append_text(key);
      append(item);
    }
    bytes_ += is_dict ? kSetItems : kAppends;
  }

  void append(const json& value) {
    switch (value.type()) {
      case json::value_t::null:
        bytes_ += kNone;
        return;
      case json::value_t::boolean:
        bytes_ += value.get<bool>() ? kTrue : kFalse;
        return;
      case json::value_t::number_unsigned:
        if (value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
          throw std::out_of_range("a number of 2^63 or more cannot be written as a pickle");
        [[fallthrough]];
      case json::value_t::number_integer:
        append_integer(value.get<int64_t>());
        return;
      case json::value_t::number_float:
        append_float(value.get<double>());
        return;
      case json::value_t::string:
        append_text(value.get_ref<const std::string&>());
        return;
      case json::value_t::object:
      case json::value_t::array:
        append_items(value);
        return;
      default:
        throw std::invalid_argument("a JSON value of this kind cannot be written as a pickle");
    }
  }

  std::string bytes_;
};

}  // namespace

std::string pickle_of(const json& value) {
  return Pickler().finish(value);
}

}  // namespace aten_recompute
