// What several steps in a row touched of tensors that no plan moves, because each step touches other parts of them
// (Part in vedette/session.h: rows of a table). A trace is one step and cannot say so; with both, a replay runs these
// steps one after the other.
//
// vedette-rows-1 is JSON, and belongs to one trace:
//   {"format": "vedette-rows-1", "always_near": 7, "held_bytes": 4194304, "chunk_bytes": 2097152, "chunks": 512,
//    "steps": [[{"op": 0, "chunks": [[3, 4], [17, 19]]}]]}
// Steps in their order, of each the ops that touched parts, of those the chunks they touched, as half open ranges.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

struct RowAccess {
  OpIndex op;
  std::vector<Span<std::uint32_t>> chunks;  // ascending, none empty, none touches the next
  bool operator==(const RowAccess&) const = default;
};

struct Rows {
  // A tensor of the trace that every op reads: what is always near, and the room that plans leave to as many chunks as
  // one step touched in parts.
  TensorIndex always_near;
  Bytes held;  // of it, what is always near
  Bytes chunk;
  std::uint32_t chunks = 0;                   // of all those tensors, touched or not; they are numbered from 0
  std::vector<std::vector<RowAccess>> steps;  // oldest first; of each, ascending by op. Empty: no step touched parts
  bool operator==(const Rows&) const = default;
};

// Errors: malformed_input, naming the place. A file without steps is malformed.
Result<Rows> parse_rows(std::string_view json, const Trace&);
std::string format_rows(const Rows&);

// How many of the chunks that a step touched in parts a plan leaves room for, where so many frames are not held: at
// most half of them.
constexpr std::uint64_t room_for_rows(std::uint64_t free_chunks, std::uint64_t touched) noexcept {
  return touched < free_chunks / 2 ? touched : free_chunks / 2;
}

// What parse_rows() holds any Rows to; nullopt: they fit the trace.
std::optional<Error> misfit(const Rows&, const Trace&);

}  // namespace vedette
