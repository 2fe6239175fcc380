// The parts that steps touch of tensors that no plan moves, because each step touches others (rows of a table). RowLog
// is of the running step; RowHistory keeps the latest steps of one bucket, from which planned_steps() gets Rows.
//
// What always holds: ranges of one op in a row neither overlap nor touch; a history has at most 32 steps and 65,536
// ranges.
//
// Lock rule: not thread safe; the session's lock guards both.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "os/chunk_index.h"
#include "vedette/rows.h"

namespace vedette::detail {

struct TouchedPart {  // by an op, in one step
  std::uint32_t op = 0;
  ChunkRange chunks;
  Bytes bytes = {};  // of them, counted as often as the op named them
};

class RowLog {
 public:
  void begin_step();
  void touch(std::uint32_t op, ChunkRange chunks, Bytes bytes = {});
  void touch_few(std::uint32_t tensor, Bytes bytes) { few_[tensor] += bytes; }  // of one that moves whole
  Bytes few_of(std::uint32_t tensor) const;
  bool is_empty() const noexcept { return chunks_.empty() && few_.empty(); }
  std::uint32_t chunks_in(ChunkRange chunks) const;  // different ones that were touched there
  void forget(ChunkRange chunks);                    // they are moved by plans
  std::uint32_t chunks() const noexcept { return static_cast<std::uint32_t>(chunks_.size()); }  // different ones
  std::vector<TouchedPart> take();

  // Chunks that are to stay near, ascending; others may be used where they lie. Until the first call all are to.
  void keep_near(std::vector<std::uint32_t> hot) { hot_ = std::move(hot); }
  bool may_lie_far(ChunkIndex chunk) const;

 private:
  std::set<std::uint32_t> chunks_;
  std::map<std::uint32_t, Bytes> few_;  // by tensor of the step's log
  std::optional<std::vector<std::uint32_t>> hot_;
  std::vector<TouchedPart> parts_;  // in order
};

class RowHistory {
 public:
  void add(std::vector<TouchedPart> step);  // an empty one is no step
  // Of its steps, the chunks that are to stay near, of which there is room for so many; nullopt: too few steps to know.
  std::optional<std::vector<std::uint32_t>> hot(std::size_t room) const;

  // `in_parts`: chunks of all tensors that are touched in parts. `held`: chunks in fast memory for good. `first`: the
  // number of each op's first section in the plan. Chunks are numbered in ascending order from 0.
  Rows rows(std::span<const ChunkRange> in_parts, std::uint32_t held, Bytes chunk,
            std::span<const std::uint32_t> first) const;

 private:
  std::deque<std::vector<TouchedPart>> steps_;  // oldest first
};

}  // namespace vedette::detail
