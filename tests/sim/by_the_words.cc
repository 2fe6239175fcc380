// The replay against a second simulator, which follows the words of vedette/replay.h (by_the_words.h): generated steps,
// machines and plans, sound or not. Times, stalls, bytes and counts are the same, and so is what cannot run.
#include "sim/by_the_words.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "support/traces.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::by_the_words_test {
namespace {

using testing::ByTheWords;

constexpr std::uint64_t unit = 12;  // bytes: whole nanoseconds on every link and share that is generated

class Made {  // one generated case
 public:
  explicit Made(std::uint64_t seed) : random_(seed) {
    make_trace();
    make_machine();
  }

  Plan plan() {
    if (const auto planned = of_policy()) return *planned;
    Plan made;
    for (const Tensor& tensor : trace.tensors)
      made.home.push_back({static_cast<std::uint8_t>(tensor.persistent ? below(machine.tiers.size()) : 0)});
    const auto ops = static_cast<std::uint32_t>(trace.ops.size());
    for (std::uint32_t n = below(3 * ops); n > 0; --n) {
      const auto slow = static_cast<std::uint8_t>(1 + below(machine.tiers.size() - 1));
      const bool comes = below(2) == 0;
      Move move{.issue = {below(ops)},
                .due = {below(ops)},
                .extent = {{below(static_cast<std::uint32_t>(trace.tensors.size()))}, {}},
                .source = {comes ? slow : std::uint8_t{0}},
                .target = {comes ? std::uint8_t{0} : slow},
                .verb = comes ? Verb::fetch : Verb::evict};
      halve(move);
      made.moves.push_back(move);
    }
    shake(made);
    return made;
  }

  Trace trace;
  Machine machine;
  int limited = 0;  // by the host's memory

 private:
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::uint64_t size() { return unit * (1 + below(20)); }

  void make_trace() {
    const std::uint32_t ops = 4 + below(12), persistent = 2 + below(5);
    for (std::uint32_t t = 0; t < persistent; ++t) add_tensor(true);
    std::vector<std::uint32_t> alive;  // of the others
    for (std::uint32_t i = 0; i < ops; ++i) {
      Op op;
      op.name = "op";
      op.time = {static_cast<std::int64_t>(below(150))};
      op.workspace = {below(3) == 0 ? size() : 0};
      const std::uint32_t w = below(persistent);
      if (below(4) != 0) op.reads.push_back({w});
      if (below(4) == 0) op.writes.push_back({w});
      if (!alive.empty() && below(3) != 0) op.reads.push_back({alive[below(alive.size())]});
      if (below(2) == 0) {
        alive.push_back(add_tensor(false));
        op.writes.push_back({alive.back()});
      } else if (!alive.empty() && below(3) == 0) {
        op.writes.push_back({alive[below(alive.size())]});
      }
      if (alive.size() > 4) alive.erase(alive.begin() + below(alive.size()));
      for (auto* list : {&op.reads, &op.writes}) std::sort(list->begin(), list->end());
      trace.ops.push_back(op);
    }
  }
  std::uint32_t add_tensor(bool persistent) {
    trace.tensors.push_back({.name = "t", .bytes = {size()}, .persistent = persistent});
    return static_cast<std::uint32_t>(trace.tensors.size() - 1);
  }

  void make_machine() {
    const std::uint32_t tiers = 2 + below(2);
    machine.granule = {below(3) == 0 ? unit * 2 : std::uint64_t{1}};
    const std::uint64_t least = testing::smallest_fast_tier(trace, machine.granule).value,
                        most = testing::ample_fast_tier(trace, machine.granule).value;
    machine.tiers = {{.name = "fast", .capacity = {least + (most - least) * below(100) / 150}},
                     {.name = "middle", .capacity = {tiers == 2 ? most * 4 : most * below(100) / 100}},
                     {.name = "slow", .capacity = {most * 4}}};
    machine.tiers.resize(tiers);
    const std::uint32_t buses = below(3);  // none, one a direction, one for both
    for (std::uint8_t k = 1; k < tiers; ++k) {
      const std::uint64_t speed = k == 1 ? 1'000'000'000 : 500'000'000;
      const Nanoseconds latency{below(2) == 0 ? 0 : below(40)};
      for (const bool inward : {true, false}) {
        Link link{.source = {inward ? k : std::uint8_t{0}},
                  .target = {inward ? std::uint8_t{0} : k},
                  .bytes_per_s = speed,
                  .latency = latency};
        if (buses > 0) link.shared = buses == 1 && inward ? 1 : 0;
        machine.links.push_back(link);
      }
    }
    if (below(2) == 0) machine.fault_time = {below(30)};
    if (below(3) == 0) machine.interference_percent = below(60);
    if (below(3) == 0) machine.remap_time = {below(4)};
    machine.tiers[1].addressable = below(4) == 0;
    machine.habits = {.early_fetches = below(3) == 0, .writes_wait = below(3) == 0};
    if (below(3) == 0) make_host_memory();
  }

  // Less than one link has, or than both have; at either slower tier.
  void make_host_memory() {
    constexpr std::array<std::uint64_t, 4> left{500'000'000, 750'000'000, 1'000'000'000, 1'500'000'000};
    machine.host_memory.tier = {static_cast<std::uint8_t>(1 + below(machine.tiers.size() - 1))};
    machine.host_memory.processor_bytes_per_s = below(2) * 250'000'000;
    machine.host_memory.bytes_per_s = left[below(left.size())] + machine.host_memory.processor_bytes_per_s;
    limited += 1;
  }

  std::optional<Plan> of_policy() {
    constexpr std::array names{"vedette", "sentinel", "g10", "autotm", "belady", "on-demand", "vdnn"};
    const std::uint32_t which = below(2 * names.size());
    const auto policy = which < names.size() ? make_policy(names[which], 1) : nullptr;
    if (policy == nullptr) return std::nullopt;
    auto made = policy->prepare(trace, machine);
    if (!made || made->paging || !made->recomputations.empty() || made->block.value != 0 || made->one_copy ||
        made->after_life != AfterLife::freed)
      return std::nullopt;
    if (below(2) == 0) shake(*made);
    return *made;
  }

  void halve(Move& move) {
    const std::uint64_t bytes = trace.tensors[move.extent.tensor.value].bytes.value;
    const std::uint64_t middle = bytes / 2 / (2 * unit) * 2 * unit;
    if (below(4) != 0 || middle == 0) return;
    move.extent.part = below(2) == 0 ? Span<Bytes>{{0}, {middle}} : Span<Bytes>{{middle}, {bytes}};
  }

  // Moves get lost and come at other times; the order within an op stays.
  void shake(Plan& plan) {
    const auto ops = static_cast<std::uint32_t>(trace.ops.size());
    std::erase_if(plan.moves, [&](const Move&) { return below(5) == 0; });
    for (Move& move : plan.moves) {
      if (below(4) == 0) move.issue = {below(ops)};
    }
    std::stable_sort(plan.moves.begin(), plan.moves.end(),
                     [](const Move& a, const Move& b) { return a.issue < b.issue; });
    plan.fallback = below(2) == 0 ? Fallback::furthest : Fallback::least_recent;
    if (below(4) == 0) plan.reserved = {below(static_cast<std::uint32_t>(machine.tiers[0].capacity.value) / 3 + 1)};
    if (below(4) == 0) plan.barriers = {{below(ops)}};
    if (!machine.tiers[1].addressable) return;
    for (std::uint32_t i = 0; i < ops; ++i) {
      for (const TensorIndex t : trace.ops[i].reads) {
        if (below(3) == 0) plan.in_place.push_back({.op = {i}, .tensor = t, .tier = {1}});
      }
    }
  }

  std::mt19937_64 random_;
};

ByTheWords::Answer of_replay(const Trace& trace, const Machine& machine, const Plan& plan) {
  const auto got = replay(trace, machine, plan);
  if (!got) return {.error = got.error().message, .stall = {}};
  ByTheWords::Answer answer{.error = {},
                            .time = got->measured.time.value,
                            .stall = {},
                            .in = got->bytes_in.value,
                            .out = got->bytes_out.value,
                            .dropped = got->bytes_dropped.value,
                            .unplanned = got->unplanned,
                            .faults = got->faults,
                            .peak = got->peak.value};
  for (const Nanoseconds stall : got->measured.op_stall) answer.stall.push_back(stall.value);
  return answer;
}

// Thirds of a bus are rounded in other places: times differ by some nanoseconds.
bool nearly(std::int64_t a, std::int64_t b) { return std::max(a, b) - std::min(a, b) <= 8; }

bool agree(ByTheWords::Answer words, const ByTheWords::Answer& got) {
  for (std::size_t op = 0; op < words.stall.size() && op < got.stall.size(); ++op) {
    if (nearly(words.stall[op], got.stall[op])) words.stall[op] = got.stall[op];
  }
  if (nearly(words.time, got.time)) words.time = got.time;
  return words == got;
}

std::string text_of(const ByTheWords::Answer& answer) {
  std::string text = answer.error + " time " + std::to_string(answer.time) + " in " + std::to_string(answer.in) +
                     " out " + std::to_string(answer.out) + " dropped " + std::to_string(answer.dropped) +
                     " unplanned " + std::to_string(answer.unplanned) + " faults " + std::to_string(answer.faults) +
                     " peak " + std::to_string(answer.peak) + " stalls";
  for (const std::int64_t stall : answer.stall) text += " " + std::to_string(stall);
  return text;
}

TEST(ByTheWords, TheReplayDoesWhatItsWordsSay) {
  int ran = 0, planned = 0, limited = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    Made made(seed);
    const Plan plan = made.plan();
    const auto words = ByTheWords(made.trace, made.machine, plan).run(3);
    const auto got = of_replay(made.trace, made.machine, plan);
    if (!words.error.empty() || !got.error.empty()) {
      EXPECT_EQ(words.error.empty(), got.error.empty()) << "seed " << seed << ": " << words.error << ", " << got.error;
      continue;
    }
    ++ran;
    planned += plan.moves.empty() ? 0 : 1;
    limited += plan.moves.empty() ? 0 : made.limited;
    EXPECT_TRUE(agree(words, got)) << "seed " << seed << "\nwords: " << text_of(words) << "\ngot:   " << text_of(got);
  }
  EXPECT_GT(ran, 1500);
  EXPECT_GT(planned, 1000);
  EXPECT_GT(limited, 300);
}

}  // namespace
}  // namespace vedette::by_the_words_test
