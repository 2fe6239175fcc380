// How many bytes must a step move when fast memory is smaller than its peak? The ideal beside measured speeds: the
// bytes that Belady's choice moves (fetch on demand, evict the tensor whose next use is furthest away), with the whole
// step known and no other limit.
//
// Its code shares nothing with the planners. It plays whole tensors, and fractions of tensors, of which only as many
// bytes leave as room is needed; bound() reports the smaller sum, so that no rounding counts against a plan. With
// unequal sizes neither is a proven minimum, but a plan that moves less has found a gain that Belady's rule misses.
//
// Rules: sizes as traced. A tensor's first write fetches nothing; neither does a write that reads nothing. A tensor
// that changed since its last move costs a write when it leaves. Others leave for nothing, as do tensors that no op
// will read. Steps repeat: the mean of eight is reported, rounded down, after four to settle. O(accesses
// + evictions * tensors) a step.
#pragma once
#include <optional>

#include "vedette/model.h"

namespace vedette::bench {

struct BeladyBound {
  Bytes read, written;  // slow to fast, fast to slow; a step
  bool operator==(const BeladyBound&) const = default;
};

enum class BeladyUnit { tensors, bytes };  // evicted: whole tensors, or as many bytes as are needed

// nullopt: one op's operands and workspace exceed `fast_memory`.
std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory, BeladyUnit unit);
std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory);  // the smaller sum of both

}  // namespace vedette::bench
