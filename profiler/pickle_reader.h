// Reads Python pickles of plain data: dictionaries, lists, tuples, text, numbers, True, False and None, as protocols 2
// to 5 write them. An opcode that names a class, calls something or refers to another file ends the reading, so that
// nothing a file says is ever executed.
//
// Values are rows of a table and refer to each other by number, so that depth and cycles cost nothing. Memory is a
// constant times the bytes of the pickle, whose text they view. Thread rule: a value.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "vedette/result.h"

namespace vedette {

class PickledValues {
 public:
  using Ref = std::uint32_t;
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, list, dict };  // a tuple is a list

  // Errors: malformed_input (cut, or no pickle), unsupported (an opcode that is no plain data). Views `bytes`.
  static Result<PickledValues> read(std::string_view bytes);

  Ref top() const noexcept { return top_; }
  Kind kind(Ref value) const { return values_.at(value).kind; }
  std::string_view text(Ref value) const;                // empty: of another kind
  std::optional<std::int64_t> integer(Ref value) const;  // nullopt: of another kind
  std::span<const Ref> items(Ref value) const;  // of a list; of a dictionary keys and values in turn; else empty
  std::optional<Ref> at(Ref dict, std::string_view key) const;  // the last of that name

 private:
  friend class PickleMachine;
  struct Value {
    Kind kind = Kind::none;
    std::int64_t number = 0;  // of an integer, a boolean; where items lie
    std::string_view text;
  };
  std::vector<Value> values_;
  std::vector<std::vector<Ref>> items_;
  Ref top_ = 0;
};

}  // namespace vedette
