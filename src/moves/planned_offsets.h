// Places of a planned step: where each storage lies whenever it is resident, the same in every step.
//
// A residency interval (a storage is born or fetched, until it is evicted or freed) is a rectangle in (op, bytes). pack
// places all of a step so that no two overlap; a storage that leaves and comes back may lie elsewhere the second time.
//
// Pure, deterministic; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::moves {

struct Residency {
  TensorIndex storage;
  // Half open, in ops of the step. The first op is that whose start begins the fetch or makes the birth, the end is the
  // op before which the copy out has ended. begin > end: from one step into the next, as a parameter that stays.
  // begin == end: through the whole step, every step.
  Span<OpIndex> ops;
  Bytes bytes;
};

struct Placement {
  std::vector<std::uint64_t> offset;  // by residency; multiples of the alignment
  Bytes peak;                         // the highest byte in use, at most the budget
  Bytes most_live;                    // largest sum of bytes resident in one op
};

struct StepShape {
  std::uint32_t ops = 0;  // all of a step
  Bytes budget;
  Bytes alignment = {512};  // as libtorch's own allocator gives
};

// By op, the bytes that are resident in it.
std::vector<Bytes> resident_bytes(const std::vector<Residency>& residencies, const StepShape& step);

// Errors: malformed_input where an interval has an op that the step has not. infeasible where the budget is below the
// resident bytes of one op, or where the intervals do not fit together.
Result<Placement> place_step(const std::vector<Residency>& residencies, const StepShape& step);

}  // namespace vedette::moves
