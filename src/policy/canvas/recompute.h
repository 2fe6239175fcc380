// Recomputing tensors instead of moving them: the producers that have to run before an op so that a dropped tensor is
// there, their cost, and the tensors that have to stay near for them. On a Ledger. Pure.
//
// A source of a producer may be near. It may be dead, and is then recomputed first and dies again when the op begins.
// Or it was dropped itself, and then comes back here already and stays (the segment is made once). A tensor in a slower
// tier is no source, nor is one that has been written since: a weight after its update, an activation that was changed
// in place.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/canvas/ledger.h"

namespace vedette::planning {

struct Chain {
  std::vector<Recomputation> means;   // of the dead, and of the tensor itself, in order of producers
  std::vector<std::uint32_t> sooner;  // gaps of dropped tensors that come back here already
  std::vector<std::uint32_t> pinned;  // gaps of sources, which have to stay near
  std::int64_t time = 0;              // of all producers that run
  std::int64_t bytes = 0;             // beside the tensor itself, before the op: the dead, and the largest scratch
};

class Recompute {
 public:
  explicit Recompute(Ledger& ledger);

  bool possible() const { return possible_; }  // the machine can
  // The op that would make the gap's tensor before the gap's next use. nullopt: none can, whatever else is dropped.
  // O(log uses).
  std::optional<std::uint32_t> producer(std::uint32_t gap) const;
  // How the gap's tensor would be made before the gap's next use. nullopt: it cannot be now. O(producers * (producers +
  // log)), at most 64 producers.
  std::optional<Chain> chain(std::uint32_t gap) const;
  // Drops the tensor over the gap. `chain` has to be of now.
  void drop(std::uint32_t gap, const Chain& chain);
  bool pinned(std::uint32_t gap) const { return pinned_[gap]; }
  Plan write() const;  // the ledger's, with the means

 private:
  struct Making;
  std::optional<std::uint32_t> writer(std::uint32_t tensor, std::uint32_t before) const;
  bool add(Making& making, std::uint32_t tensor, std::uint32_t producer) const;
  bool source(Making& making, std::uint32_t tensor, std::uint32_t producer) const;

  Ledger& ledger_;
  bool possible_;
  std::vector<bool> pinned_;
  std::vector<std::vector<std::uint32_t>> writes_;  // [tensor]: ops, ascending
  std::vector<Op> producers_;                       // [op], where the machine can
  std::vector<bool> replayable_;
  std::vector<Recomputation> means_;
};

}  // namespace vedette::planning
