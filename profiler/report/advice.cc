// Changes to try, each priced by a simulator on the profiled step.
//
// The run as it was is simulated once: its step laid into its chunks, under its policy, in its budget. A change is
// simulated in the same way. The measured step is the operators' least times, which stay; their extra time beside
// moves, which follows the bytes that move; waits, which follow the simulated ones; and ops that run again.
//
// The difference of two simulated steps promises too much. A simulated operator is never slower beside moves, so that
// the next waits for moves that slower operators hide in truth (docs/report.md has predictions beside real runs).
#include <algorithm>
#include <array>
#include <cmath>

#include "base/daily.h"
#include "profiler/report/report.h"
#include "profiler/report/words.h"

namespace vedette::report {

namespace {

// Of the measured step. Less is within what steps differ by themselves.
constexpr double worth_telling = 0.02;
constexpr double same_speed = 0.005;
constexpr std::size_t most_lines = 5;
// A running plan was planned again from what its steps took; another one is simulated as it is planned first. What a
// move costs beside its bytes differs from disk to disk.
constexpr double worth_another_policy = 0.05, worth_other_chunks = 0.05;
constexpr std::array more_memory = {1.05, 1.1, 1.25, 1.5, 2.0};
constexpr std::array less_memory = {0.6, 0.7, 0.8, 0.9};
// Time of a chunk's move beside that of its bytes: ResNet-18 and MLP with chunks of 256 KiB and 2 MiB on NVMe
// (bench/advice.py). A recording knows the link's speed in its own chunks alone.
constexpr Nanoseconds a_move{45'000};
constexpr std::array<std::uint64_t, 6> chunks = {64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20};

// The link's speed in chunks of another size.
std::uint64_t speed_in(Bytes chunk, Bytes known_chunk, std::uint64_t known_speed) {
  const auto seconds = [](Nanoseconds t) { return static_cast<double>(t.value) * 1e-9; };
  const double known = static_cast<double>(known_chunk.value) / static_cast<double>(known_speed);
  const double a_byte =
      std::max(known - seconds(a_move), known / 4) / static_cast<double>(known_chunk.value);  // without its move's cost
  const double fixed = known - a_byte * static_cast<double>(known_chunk.value);
  const auto bytes = static_cast<double>(chunk.value);
  return static_cast<std::uint64_t>(std::max(1.0, bytes / (bytes * a_byte + fixed)));
}

class Prices {
 public:
  Prices(const Run& run, const ReportOptions& options, const Waterfall& fall)
      : run_(run), adviser_(options.adviser), measured_(fall.step), trace_(simulated_trace(run)) {
    for (const LostTime& lost : fall.lost) {
      if (lost.cause == Lost::operators) beside_moves_ = std::min(fall.beside_moves, lost.time + lost.in_bound);
      if (lost.cause == Lost::late_fetch || lost.cause == Lost::no_room || lost.cause == Lost::write)
        waits_ += lost.time + lost.in_bound;
    }
  }

  Advised advise() {
    Advised advised;
    const auto now = simulate(trace_, run_.budget, run_.chunk, run_.policy, recomputes_);
    if (!now) {
      advised.note = "The run as it was could not be simulated: " + now.error().message + ".";
      return advised;
    }
    now_ = *now;
    advised.simulated = now_.step;
    for (const auto& line :
         {step_in_backward(), larger_budget(), other_chunks(), other_policy(), recompute(), smaller_budget()})
      if (line) advised.lines.push_back(*line);
    std::stable_sort(advised.lines.begin(), advised.lines.end(),
                     [](const Advice& a, const Advice& b) { return a.step < b.step; });
    if (advised.lines.size() > most_lines) advised.lines.erase(advised.lines.begin() + most_lines, advised.lines.end());
    if (const auto line = unbounded_writes()) advised.lines.push_back(*line);
    if (over_)
      advised.note = "The time for simulations was over before every change was tried; --simulate-seconds gives more.";
    else if (advised.lines.empty())
      advised.note = "No change that was simulated makes the step 2 % faster, and less memory makes it slower.";
    return advised;
  }

 private:
  Result<Simulated> simulate(const Trace& trace, Bytes budget, Bytes chunk, const std::string& policy) {
    return simulate(trace, budget, chunk, policy, recomputes_);
  }
  Result<Simulated> simulate(const Trace& trace, Bytes budget, Bytes chunk, const std::string& policy,
                             bool recomputes) {
    return simulate(trace, machine_of_session(run_), budget, chunk, policy, recomputes);
  }
  Result<Simulated> simulate(const Trace& trace, Machine machine, Bytes budget, Bytes chunk, const std::string& policy,
                             bool recomputes) {
    if (over_) return Error{Cause::unavailable, "not simulated: the time was over"};
    machine.tiers[0].capacity = budget;
    machine.can_recompute = recomputes;
    const bool whole = machine.whole_tensors;
    if (!whole && chunk != run_.chunk) {
      machine.granule = chunk;
      for (Link& link : machine.links) {
        for (std::uint64_t* const speed : {&link.bytes_per_s, &link.alone_bytes_per_s})
          if (*speed > 0) *speed = speed_in(chunk, run_.chunk, *speed);
      }
    }
    auto ran = adviser_.simulate(whole ? trace : adviser_.in_chunks(trace, machine, policy), machine, policy);
    if (!ran && ran.error().cause == Cause::unavailable) over_ = true;
    return ran;
  }

  static double in_proportion(Nanoseconds measured, double now, double later) {
    return now <= 0 ? 0.0 : static_cast<double>(measured.value) * (later - now) / now;
  }
  // Slower operators hide the simulated waits that the measured run lacks, and of a change's waits as many.
  double waits_change(double now, double later) const {
    const auto measured = static_cast<double>(waits_.value);
    if (later >= now) return later - now;  // new ones
    return now > measured ? std::max(-measured, later - now) : in_proportion(waits_, now, later);
  }
  Nanoseconds predicted(const Simulated& then) const {
    const auto moved = [](const Simulated& s) { return static_cast<double>((s.bytes_in + s.bytes_out).value); };
    const double change = in_proportion(beside_moves_, moved(now_), moved(then)) +
                          static_cast<double>((then.recompute - now_.recompute).value) +
                          waits_change(static_cast<double>(now_.stall.value), static_cast<double>(then.stall.value));
    return std::max(Nanoseconds{1}, measured_ + Nanoseconds{static_cast<std::int64_t>(change)});
  }
  double gain(const Simulated& then) const {
    return static_cast<double>((measured_ - predicted(then)).value) /
           static_cast<double>(std::max<std::int64_t>(1, measured_.value));
  }
  std::string arrow(const Simulated& then) const { return readable(measured_) + " -> " + readable(predicted(then)); }
  Advice line(Change change, const Simulated& then, std::string sentence) const {
    return {.change = change,
            .sentence = std::move(sentence),
            .step = predicted(then),
            .budget = run_.budget,
            .chunk = run_.chunk,
            .policy = run_.policy,
            .late_fewer = static_cast<std::int64_t>(now_.late) - static_cast<std::int64_t>(then.late)};
  }

  std::optional<Advice> step_in_backward() {
    const auto early = updated_early(trace_);
    if (!early) return std::nullopt;
    const auto then = simulate(*early, run_.budget, run_.chunk, run_.policy);
    if (!then || gain(*then) < worth_telling) return std::nullopt;
    return line(Change::step_in_backward, *then,
                std::string("Update each parameter in the backward pass (") + (in_python_ ? "vedette." : "vedette::") +
                    "step_in_backward): " + arrow(*then) + ".");
  }

  // The smallest of them that brings most of what the largest brings.
  std::optional<Advice> larger_budget() {
    const Bytes peak = peak_bytes(trace_);
    std::vector<std::pair<Bytes, Simulated>> tried;
    for (const double factor : more_memory) {
      const Bytes budget = in_whole_chunks(
          std::min(static_cast<double>(run_.budget.value) * factor, static_cast<double>(peak.value)), true);
      if (budget <= run_.budget || (!tried.empty() && budget <= tried.back().first)) continue;
      const auto then = simulate(trace_, budget, run_.chunk, run_.policy);
      if (then) tried.emplace_back(budget, *then);
    }
    double best = 0;
    for (const auto& [budget, then] : tried) best = std::max(best, gain(then));
    if (best < worth_telling) return std::nullopt;
    const auto enough =
        std::find_if(tried.begin(), tried.end(), [&](const auto& each) { return gain(each.second) >= 0.8 * best; });
    Advice advice = line(Change::more_memory, enough->second, "");
    advice.budget = enough->first;
    advice.sentence = "Give it " + readable(Bytes{enough->first.value - run_.budget.value}) + " more memory (" +
                      readable(enough->first) + "): " + arrow(enough->second) + late_words(advice.late_fewer) + ".";
    return advice;
  }

  // The smallest that costs nothing.
  std::optional<Advice> smaller_budget() {
    for (const double factor : less_memory) {
      const Bytes budget = in_whole_chunks(static_cast<double>(run_.budget.value) * factor, false);
      const auto then = simulate(trace_, budget, run_.chunk, run_.policy);
      if (!then || gain(*then) < -same_speed) continue;
      Advice advice = line(Change::less_memory, *then, "");
      advice.budget = budget;
      advice.sentence = "Take " + readable(Bytes{run_.budget.value - budget.value}) + " of its memory away (" +
                        readable(budget) + "): " + arrow(*then) + ".";
      return advice;
    }
    return std::nullopt;
  }

  std::optional<Advice> other_chunks() {
    if (run_.machine.whole_tensors) return std::nullopt;
    std::optional<Advice> best;
    for (const std::uint64_t size : chunks) {
      if (size == run_.chunk.value || 8 * size > run_.budget.value) continue;
      const auto then = simulate(trace_, run_.budget, {size}, run_.policy);
      if (!then || gain(*then) < worth_other_chunks || (best && best->step <= predicted(*then))) continue;
      best = line(Change::chunk, *then, "Move chunks of " + readable(Bytes{size}) + ": " + arrow(*then) + ".");
      best->chunk = {size};
    }
    return best;
  }

  std::optional<Advice> other_policy() {
    std::optional<Advice> best;
    for (const std::string& name : adviser_.policies) {
      if (name == run_.policy) continue;
      const auto then = simulate(trace_, run_.budget, run_.chunk, name);
      if (!then || gain(*then) < worth_another_policy || (best && best->step <= predicted(*then))) continue;
      best = line(Change::policy, *then, "Plan with the policy " + name + ": " + arrow(*then) + ".");
      best->policy = name;
    }
    return best;
  }

  // Where the session could not. On a GPU or a disk alike: which ops give the same bytes is tried when it runs.
  std::optional<Advice> recompute() {
    if (recomputes_) return std::nullopt;
    const auto then = simulate(trace_, run_.budget, run_.chunk, run_.policy, true);
    if (!then || gain(*then) < worth_another_policy) return std::nullopt;
    return line(Change::recompute, *then,
                std::string("Let the policy recompute what is dear to move (") +
                    (in_python_ ? "recompute=\"planned\"" : ".recompute = vedette::Recompute::planned") +
                    "): " + arrow(*then) + ".");
  }

  // Without SessionOptions::max_writes: its price, whatever it is.
  std::optional<Advice> unbounded_writes() {
    const auto& [bound, without] = run_.origin.disk_writes;
    if (bound.value == 0) return std::nullopt;
    Machine machine = machine_of_session(run_);
    const TierIndex disk{static_cast<std::uint32_t>(machine.tiers.size() - 1)};
    for (Link& link : machine.links)
      if (link.target == disk && link.source == TierIndex{0}) link.bytes_per_s = without.value;
    const auto then = simulate(trace_, machine, run_.budget, run_.chunk, run_.policy, recomputes_);
    if (!then) return std::nullopt;
    constexpr Nanoseconds second{1'000'000'000};
    return line(Change::no_bound, *then,
                "Without max_writes (" + readable_daily(bound, second) + "): " + arrow(*then) + ".");
  }

  Bytes in_whole_chunks(double bytes, bool up) const {
    const double count = bytes / static_cast<double>(run_.chunk.value);
    return {static_cast<std::uint64_t>(up ? std::ceil(count) : std::floor(count)) * run_.chunk.value};
  }
  static std::string late_words(std::int64_t fewer) {
    return fewer <= 0 ? ""
                      : ", with " + std::to_string(fewer) + (fewer == 1 ? " late fetch" : " late fetches") + " less";
  }

  const Run& run_;
  const Adviser& adviser_;
  const Nanoseconds measured_;
  Nanoseconds beside_moves_, waits_;  // of it
  Trace trace_;
  Simulated now_;
  const bool recomputes_ = run_.machine.can_recompute;
  const bool in_python_ = run_.origin.command.find("python") != std::string::npos;
  bool over_ = false;
};

}  // namespace

std::string_view name_of(Change change) noexcept {
  constexpr std::string_view names[] = {"step_in_backward", "more_memory", "chunk",           "policy",
                                        "less_memory",      "recompute",   "unbounded_writes"};
  return names[static_cast<std::size_t>(change)];
}

Advised advised_of(const Run& run, const ReportOptions& options, const Waterfall& fall, const Noise& noise) {
  const auto none = [](std::string why) { return Advised{.note = std::move(why)}; };
  if (!fall.known) return none("Advice needs a recorded step with its times and its profile.");
  if (!options.adviser.simulate || !options.adviser.in_chunks) return none("No simulator was asked for advice.");
  if (run.machine.tiers.size() < 2 || run.chunk.value == 0 || run.budget < run.chunk)
    return none("The recording names no slow tier that a simulator could use.");
  if (run.steady.empty()) return none("No step ran after warm-up and profiling, so there is nothing to improve yet.");
  if (noise.disturbed)
    return none(
        "No advice: other load disturbed this run, and what a change brings is not told from it; record it again "
        "where nothing else runs.");
  return Prices(run, options, fall).advise();
}

}  // namespace vedette::report
