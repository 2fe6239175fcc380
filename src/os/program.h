// The program as an executor sees it: the clock by which its ops, stalls and moves are timed. Deterministic tests have
// one that they set (tests/support/manual_program.h).
//
// Thread rule: any thread, several at a time.
#pragma once
#include "vedette/units.h"

namespace vedette {

class Program {
 public:
  virtual ~Program() = default;
  virtual Nanoseconds now() noexcept = 0;  // of the host; never goes back
};

class HostProgram final : public Program {
 public:
  Nanoseconds now() noexcept override;  // CLOCK_MONOTONIC
};

// The one of this process; it has no state.
Program& host_program() noexcept;

}  // namespace vedette
