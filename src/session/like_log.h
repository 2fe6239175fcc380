// The log of the running step to its end, foretold from two earlier steps with the same ops and other sizes. A tensor's
// size follows from its sizes there: it grows with the first tensor whose size differs, or with its square.
//
// What always holds: the foretold log agrees with the running step so far, tensor by tensor. What differs later is no
// harm, since each op is compared with what was foretold.
//
// Pure. O(ops + tensors + operands).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pack/units.h"

namespace vedette::detail {

struct SizedStep {
  const StepLog* log;                  // as it ended: tensors that no op used are not in it
  std::span<const Nanoseconds> times;  // of its ops
};

struct ForetoldLog {
  enum class Is : std::uint8_t {
    not_yet,  // no tensor so far tells the sizes
    another,  // the step is not like these, or no size follows
    known,
  } is = Is::not_yet;
  StepLog log{};  // offsets of tensors that the running step does not have yet are those of the first step
};
ForetoldLog foretell(const SizedStep& one, const SizedStep& other, const StepLog& running);

// Whether logs of its likes may be foretold: no op touches tensors in parts, none is small, and the operands are as
// announced, not as pages were touched.
bool can_be_foretold(const StepLog& log);

// The hash of each op of a foretold log, as the session counts it for one that runs.
std::vector<std::uint64_t> hashes_of(const StepLog& log);

}  // namespace vedette::detail
