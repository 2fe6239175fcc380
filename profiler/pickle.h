// Writes Python pickles of dictionaries, lists, numbers and text, in protocol 2 and with the few opcodes that PyTorch's
// memory viewer understands (torch/utils/viz/MemoryViz.js): no globals, no reductions.
#pragma once
#include <cstdint>
#include <ostream>
#include <string_view>
#include <type_traits>

namespace vedette {

class Pickle {
 public:
  explicit Pickle(std::ostream& out) : out_(out) { out_ << "\x80\x02"; }

  void begin_dict() { out_ << "}("; }  // then text and value, in turn
  void end_dict() { out_ << 'u'; }
  void begin_list() { out_ << "]("; }  // then values
  void end_list() { out_ << 'e'; }
  void text(std::string_view text) {
    out_ << 'X';
    bytes(text.size(), 4);
    out_ << text;  // UTF-8
  }
  void number(std::int64_t value) {
    if (value >= INT32_MIN && value <= INT32_MAX) {
      out_ << 'J';
      bytes(static_cast<std::uint64_t>(value), 4);
    } else {  // LONG1, two's complement
      out_ << '\x8a' << '\x08';
      bytes(static_cast<std::uint64_t>(value), 8);
    }
  }
  void boolean(bool value) { out_ << (value ? '\x88' : '\x89'); }
  void pair(std::int64_t first, std::int64_t second) {  // a tuple
    number(first);
    number(second);
    out_ << '\x86';
  }
  void end() { out_ << '.'; }

  void entry(std::string_view key, std::string_view value) { text(key), text(value); }
  void entry(std::string_view key, const char* value) { text(key), text(value); }
  template <class Integer>
  requires std::is_integral_v<Integer>
  void entry(std::string_view key, Integer value) { text(key), number(static_cast<std::int64_t>(value)); }

 private:
  void bytes(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i, value >>= 8) out_.put(static_cast<char>(value & 0xff));
  }
  std::ostream& out_;
};

}  // namespace vedette
