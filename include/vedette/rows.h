// The rows of tables that several steps in a row touched. Each step touches other parts of such tensors (Part in
// vedette/session.h), so no plan moves them, and the trace of one step cannot tell. With a trace and its rows, a replay
// runs these steps one after the other.
//
// vedette-rows-1 is JSON, and belongs to one trace:
//   {"format": "vedette-rows-1", "always_near": 7, "held_bytes": 4194304, "chunk_bytes": 2097152, "chunks": 512,
//    "touched_bytes": 512, "steps": [[{"op": 0, "chunks": [[3, 4], [17, 19]]}]]}
// Steps stand in their order; each lists the ops that touched parts, and of each op the chunks, as half open ranges.
// Without "touched_bytes" an op touches all of a chunk.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  // A tensor of the trace that every op reads. It stands for the memory that never moves, and for the room that plans
  // leave to as many chunks as one step touched in parts.
  TensorIndex always_near;
  Bytes held;  // of it, the memory that never moves
  Bytes chunk;
  Bytes touched = {};                         // of a chunk, by an op that touches it: on average; 0: all of it
  std::uint32_t chunks = 0;                   // of all those tensors, touched or not; they are numbered from 0
  std::vector<std::vector<RowAccess>> steps;  // oldest first; of each, ascending by op. Empty: no step touched parts
  bool operator==(const Rows&) const = default;
};

// Errors: malformed_input, naming the place. A file without steps is malformed.
Result<Rows> parse_rows(std::string_view json, const Trace&);
std::string format_rows(const Rows&);

// The number of chunks touched in parts that a plan leaves room for: at most half of the free frames.
constexpr std::uint64_t room_for_rows(std::uint64_t free_chunks, std::uint64_t touched) noexcept {
  return touched < free_chunks / 2 ? touched : free_chunks / 2;
}

// Where ops can use slower memory in place: the chunks that stay near, of which there is room for so many. They are
// those that the most steps touched, three at least; the others are used where they lie. `steps`: of each chunk, how
// many touched it. Ascending. O(chunks log chunks).
std::vector<std::uint32_t> hot_chunks(std::span<const std::pair<std::uint32_t, std::uint32_t>> steps, std::size_t room);

// The error that parse_rows() finds in such rows; nullopt: they fit the trace.
std::optional<Error> misfit(const Rows&, const Trace&);

}  // namespace vedette
