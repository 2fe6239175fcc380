// A session that does well says so: a line when its first plan is there, and one at its end. It also says what its
// program forgot: a step, or all of its tensors.
//
// Thread rule: none of its own; the session's lock guards it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/daily.h"
#include "vedette/model.h"
#include "vedette/observer.h"

namespace vedette::detail {

class SignsOfLife {
 public:
  // `budget`: fast memory with what no plan moves: small tensors, rows, what is held. The first call with a plan that
  // moves something gives the line; the plan is replayed for it, which takes
  // milliseconds. Nothing later, and nothing where the replay fails.
  std::optional<std::string> planned(std::uint64_t step, const Trace& trace, const Machine& machine, const Plan& plan,
                                     Bytes budget, const std::optional<Endurance>& rated = {});

  bool has_begun() const noexcept { return first_began_.has_value(); }
  void first_step_begins(Nanoseconds now) noexcept { first_began_ = last_ended_ = now; }
  // From the first step's begin to the last one's end.
  Nanoseconds elapsed() const noexcept { return first_began_ ? last_ended_ - *first_began_ : Nanoseconds{}; }
  // `phase`: as Session::phase(), at the step's end; a step that rests is planned.
  void step_ended(std::string_view phase, Nanoseconds now) noexcept;

  // An op outside of any step, where none has begun. A sentence once, after many.
  std::optional<std::string> op_without_a_step();

  // The line of the end; nothing without a step.
  std::optional<std::string> ended(const Counters& all, const std::optional<Endurance>& rated = {}) const;
  // A sentence for a program whose steps, or whose tensors, the session never saw; at its end.
  std::optional<std::string> forgotten(const Counters& all) const;

 private:
  std::optional<Nanoseconds> first_began_;  // of all steps
  Nanoseconds last_ended_;
  bool told_plan_ = false;
  std::uint64_t planned_ = 0, predicted_ = 0, on_demand_ = 0, without_a_step_ = 0;
};

}  // namespace vedette::detail
