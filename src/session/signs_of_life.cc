// Lines and sentences: see signs_of_life.h.
#include "session/signs_of_life.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/daily.h"
#include "base/readable.h"
#include "model/wear.h"
#include "vedette/replay.h"

namespace vedette::detail {
namespace {

std::string percent(Nanoseconds part, Nanoseconds whole) {
  std::array<char, 32> text{};
  const double share = whole.value > 0 ? 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value) : 0;
  std::snprintf(text.data(), text.size(), "%.1f %%", share);
  return text.data();
}

std::string counted(std::uint64_t number, const char* what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

}  // namespace

std::optional<std::string> SignsOfLife::planned(std::uint64_t step, const Trace& trace, const Machine& machine,
                                                const Plan& plan, Bytes budget, const std::optional<Endurance>& rated) {
  if (told_plan_ || plan.moves.empty() || machine.tiers.size() < 2) return std::nullopt;
  told_plan_ = true;
  const auto run = replay(trace, machine, plan);
  if (!run) return std::nullopt;
  const Nanoseconds time = run->measured.time;
  const Bytes moves = machine.tiers[0].capacity;
  const std::string kept =
      moves < budget ? ", " + readable({budget.value - moves.value}) + " of it for what is never moved" : "";
  std::string line = "planned at step " + std::to_string(step) + ": a step needs " + readable(peak_bytes(trace)) +
                     " at most, fast memory has " + readable(budget) + kept + "; " + readable(run->bytes_in) +
                     " are fetched and " + readable(run->bytes_out + run->bytes_dropped) + " evicted each step, " +
                     readable(run->bytes_out) + " of them written; ";
  line +=
      run->measured.stall.value * 1000 < time.value ? "no stall" : "stalls of " + percent(run->measured.stall, time);
  line += " expected";
  const Bytes to_disk = planned_for_disk(trace, machine, plan, run->bytes_out);
  const std::string a_day = readable_daily(to_disk, time);
  if (!a_day.empty()) line += "; " + a_day + " written to the disk at this speed" + readable_wear(to_disk, time, rated);
  return line;
}

void SignsOfLife::step_ended(std::string_view phase, Nanoseconds now) noexcept {
  last_ended_ = now;
  ++(phase == "planned" ? planned_ : phase == "foreseen" ? predicted_ : on_demand_);
}

std::optional<std::string> SignsOfLife::op_without_a_step() {
  constexpr std::uint64_t many = 2'000;  // more than making a model takes
  if (first_began_ || ++without_a_step_ != many) return std::nullopt;
  return "no step has begun, and " + std::to_string(many) +
         " operators ran: nothing is planned without steps; begin one around each update of the parameters "
         "(guard.step())";
}

std::optional<std::string> SignsOfLife::ended(const Counters& all, const std::optional<Endurance>& rated) const {
  if (all.steps == 0 || !first_began_) return std::nullopt;
  const Nanoseconds time{static_cast<std::int64_t>(all.elapsed_ns)};
  const std::uint64_t heard = planned_ + predicted_ + on_demand_;
  std::string line = counted(std::max(heard, all.steps), "step") + ": " + std::to_string(planned_) + " planned, " +
                     std::to_string(predicted_) + " predicted, " + std::to_string(on_demand_) + " on demand; " +
                     readable(all.bytes_in) + " fetched, " + readable(all.bytes_out) + " written";
  const std::string a_day = readable_daily(all.disk_bytes_out, time);
  if (!a_day.empty()) line += " (" + a_day + " to the disk" + readable_wear(all.disk_bytes_out, time, rated) + ")";
  line += ", stalls " + percent({static_cast<std::int64_t>(all.stall_ns)}, time) + " of the time, " +
          counted(all.faults, "fault");
  return line;
}

std::optional<std::string> SignsOfLife::forgotten(const Counters& all) const {
  constexpr std::uint64_t many = 100;
  if (all.steps == 0 && without_a_step_ >= many)
    return "no step began: nothing was planned; begin one around each update of the parameters (guard.step())";
  if (all.steps > 0 && all.peak_bytes.value == 0)
    return "no tensor was made or watched while the guard was open: it had nothing to move; open it before the model's "
           "tensors are made, or watch() the model and the optimizer";
  return std::nullopt;
}

}  // namespace vedette::detail
