// A plan by ops: the moves issued and due around each op, its operands used in place, and the recomputations before it.
// Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/grouped.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::sim {

struct Schedule {
  Grouped issued, due;        // indices into Plan::moves
  Grouped in_place;           // tensors
  Grouped recomputed;         // indices into Plan::recomputations
  std::vector<Op> producers;  // [op], where something is recomputed
  std::vector<char> barrier;  // [op]: it waits for all evictions; empty: no op does
};

// Errors: unsupported where a replay cannot follow the plan, malformed_input where the plan names an op or tensor that
// does not exist.
Result<Schedule> schedule(const Trace& trace, const Machine& machine, const Plan& plan);

// The pages that each op touches. Where none were tracked, an op touches all of each operand.
class TouchedPages {
 public:
  explicit TouchedPages(const Trace& trace);
  // Whether the op touches one of these bytes of the tensor, which is an operand of it.
  bool touches(std::uint32_t op, std::uint32_t tensor, Span<std::uint64_t> bytes) const {
    return first_access_.empty() || look_up(op, tensor, bytes);
  }

 private:
  bool look_up(std::uint32_t op, std::uint32_t tensor, Span<std::uint64_t> bytes) const;

  const Trace& trace_;
  std::vector<std::uint32_t> first_access_;  // of each op, into Trace::pages; empty where no pages are known
};

}  // namespace vedette::sim
