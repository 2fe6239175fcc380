// The writes that wear a disk out.
//
// Thread rule: functions of their arguments.
#pragma once
#include "model/liveness.h"
#include "vedette/model.h"
#include "vedette/observer.h"

namespace vedette {

// Bytes that went to the disk, which is the last tier; 0 where that is none.
inline Bytes written_to_disk(const Counters& counters, const Machine& machine) {
  if (machine.tiers.size() < 2 || !machine.tiers.back().is_disk()) return {};
  if (machine.tiers.size() == 2) return {counters.bytes_out};
  return {counters.far_bytes_out + counters.moved_between_slow_tiers};
}

// The same of a planned step, of which `out` bytes leave fast memory; what passes that by is counted by its moves.
inline Bytes planned_for_disk(const Trace& trace, const Machine& machine, const Plan& plan, Bytes out) {
  if (machine.tiers.size() < 2 || !machine.tiers.back().is_disk()) return {};
  if (machine.tiers.size() == 2) return out;
  Bytes written;
  const auto last = static_cast<std::uint32_t>(machine.tiers.size() - 1);
  for (const Move& move : plan.moves)
    if (move.target.value == last && move.source.value < last) written += bytes_of(move.extent, trace);
  return written;
}

}  // namespace vedette
