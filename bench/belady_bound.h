// How many bytes must a step move when fast memory is smaller than its peak? The yardstick beside measured speeds: what
// Belady's choice moves (fetch on demand, evict what is needed furthest in the future), with the whole step known and
// no other limit.
//
// It is computed by code that shares nothing with the planners. Two readings, of which bound() reports the one with
// fewer bytes: whole tensors, and fractions of tensors (only as many bytes leave as room is needed), so that no
// rounding is held against a plan. With unequal sizes neither is a proven minimum, but a plan that moves less has found
// something Belady's rule misses.
//
// Rules: sizes as traced. A tensor's first write fetches nothing; neither does a pure write, which replaces what was
// there. What was written since it last came or went costs a write when it leaves; else it leaves for nothing, as do
// tensors nobody will read. Steps repeat: the mean of eight is reported, rounded down, after four to settle. O(accesses
// + evictions * tensors) a step.
#pragma once
#include <optional>

#include "vedette/model.h"

namespace vedette::bench {

struct BeladyBound {
  Bytes read, written;  // slow to fast, fast to slow; a step
  bool operator==(const BeladyBound&) const = default;
};

enum class BeladyUnit { tensors, bytes };  // what leaves: whole tensors, or as many bytes as are needed

// nullopt: one op's operands and workspace exceed `fast_memory`.
std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory, BeladyUnit unit);
std::optional<BeladyBound> belady_bound(const Trace& trace, Bytes fast_memory);  // the smaller sum of both

}  // namespace vedette::bench
