// What the tests of other people's handlers share: a guarded loop in a budget that makes its memory move, and its right
// result.
#pragma once
#include "session/loop.h"
#include "support/broken_calls.h"
#include "support/child.h"

namespace vedette::testing {

constexpr Bytes tight_budget = {std::uint64_t{1} << 20};

inline std::uint64_t loop_result(Session& session, std::uint64_t steps) {
  Loop loop(session, 5, 120'000);
  std::uint64_t all = 0;
  for (std::uint64_t s = 0; s < steps; ++s) all = all * 31 + loop.step(s);
  return all * 31 + loop.state();
}

inline std::uint64_t right_result(std::uint64_t steps) {
  const auto session = open_session({std::uint64_t{64} << 20}, "host", "on-demand");
  return loop_result(*session, steps);
}

// Faults of memory that is away, beyond what a plan foresees.
inline bool bytes_survive(Session& session) {
  Block first(session, 500'000), second(session, 900'000);
  first.fill(1);
  second.fill(2);
  return first.holds(1) && second.holds(2);
}

// A step that does nothing else.
inline void empty_step(Session& session) { const auto scope = session.step(); }

inline std::string name_of_faults(Forbidden forbidden) {
  return forbidden == Forbidden::nothing ? "served_by_userfaultfd" : "served_by_signals";
}

}  // namespace vedette::testing
