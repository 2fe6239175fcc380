// The first half of the planner: a timed walk through a few steps that knows all future uses. At each op it makes room
// by Belady's rule, waits for late fetches, and keeps the link from the slow tier busy with the tensors needed next.
// Its result are the gaps between uses that tensors spend in the slow tier. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "policy/canvas/uses.h"
#include "vedette/model.h"

namespace vedette::planning {

// One stay in the slow tier. Ops count on from step to step: op 3 of the step after a step of 10 ops is 13.
struct Stay {
  std::uint32_t tensor = 0;
  std::uint32_t last_use = 0;  // the evict is issued when this op has ended
  std::uint32_t gone = 0;      // first op at which its room is free
  std::uint32_t fetch = 0;     // the fetch is issued when this op begins; room is taken from here on
  std::uint32_t next_use = 0;  // due
  bool returns = true;         // false: dies away, there is no fetch
  bool writes = true;          // false: the slow tier has the same bytes
  std::uint32_t tier = 0;      // where it is meanwhile; 0: Setting::slow
  // Where the slow tier is full (slow_room.h): the evict is issued so many ops after `last_use`, and the fetch is due
  // so many before `next_use`.
  std::uint32_t later = 0, sooner = 0;
  bool operator==(const Stay&) const = default;
};

// The machine as planner and sweep see it.
struct Setting {
  std::int64_t budget = 0;  // bytes of the fastest tier that may be used
  TierIndex slow;
  std::uint64_t granule = 1;
  std::uint64_t read_bytes_per_s = 0, write_bytes_per_s = 0;
  Nanoseconds read_latency, write_latency;
  bool shared = false;  // both directions share the bandwidth
};

// The sizes and times of tensors, counted once for all sweeps, covers and layouts of a trace.
struct Costs {
  std::vector<std::int64_t> room;           // [tensor]: bytes of the fastest tier, in whole granules
  std::vector<std::int64_t> in_ns, out_ns;  // [tensor]: of its bytes on the links
  std::vector<std::int64_t> occupied;       // [op]: bytes in use with all tensors near, workspace included
};
// Of the setting its granule and links. O(ops + tensors).
Costs costs_of(const Trace& trace, const Uses& uses, const Setting& setting);

// How eager the sweep is. Prefetching early needs room, which others must leave: the right trade differs from trace to
// trace, so the planner tries several and keeps the best rehearsed.
struct Knobs {
  std::int64_t horizon_ns = 0;           // others are evicted only for tensors needed within this time
  std::uint32_t distance_percent = 100;  // a victim is needed at least this much later than its successor
  std::uint32_t clean_percent = 115;     // how much further away a clean tensor counts, because leaving costs no write
  // Changed tensors go out and come back so that they can leave for nothing later, while the link out is busy for no
  // longer than this; below 0: never.
  std::int64_t clean_ahead_ns = -1;
  // The same, of tensors that die within the step but later than with their last use, from their last change on.
  std::int64_t clean_after_last_use_ns = -1;
  // of tensors that outlive the step, those first used last in it, this many bytes: near while anything else may leave
  std::int64_t kept = 0;
  std::int64_t staging = 0;  // bytes of the budget that are left out of the sweep, as room for fetching earlier
};

// The gaps whose last use lies in the middle one of three steps. Empty optional: some op does not fit.
std::vector<Stay> sweep(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting,
                        const Knobs& knobs);

// occupied[op]: bytes of the fastest tier in use during the op with all of them near, in whole granules, workspace
// included.
std::vector<std::int64_t> occupied_without_moves(const Trace& trace, const Uses& uses, std::uint64_t granule);

}  // namespace vedette::planning
