// Places of a planned step: tensors that the plan has in fast memory at one moment never overlap, whatever the plan.
#include "moves/planned_places.h"

#include <gmock/gmock.h>

#include <random>

#include "session/step_plan.h"
#include "vedette/check.h"

namespace vedette::detail::planned_places_test {
namespace {

// A log of ops that each make a tensor, use some, and let some go, between ops as well.
StepLog random_log(unsigned seed, std::uint32_t ops) {
  std::mt19937 random(seed);
  StepLog log;
  std::uint64_t offset = 0;
  std::uint32_t events = 0;
  std::vector<std::uint32_t> living;
  const auto add = [&](std::uint32_t birth, std::uint32_t op) {
    log.tensors.push_back(
        {.name = "t", .bytes = {1 + random() % 40000}, .offset = offset, .birth = birth, .birth_op = op});
    offset += 64 << 10;
    return static_cast<std::uint32_t>(log.tensors.size() - 1);
  };
  std::vector<std::uint32_t> lasting;
  for (int i = 0; i < 5; ++i) lasting.push_back(add(0, 0));
  const auto let_go = [&](std::int64_t op) {
    if (living.size() < 3) return;
    const std::size_t which = random() % living.size();
    log.tensors[living[which]].death = ++events;
    log.tensors[living[which]].death_op = op;
    living.erase(living.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::uint32_t i = 0; i < ops; ++i) {
    if (random() % 2 == 0) living.push_back(add(++events, i));  // before the op
    LoggedOp op{.name = "op", .time = {1000}, .reads = {}, .writes = {}, .events = {events, events}};
    if (random() % 3 != 0) living.push_back(add(++events, i));  // inside
    for (int r = 0; r < 2 && !living.empty(); ++r) op.reads.push_back(living[random() % living.size()]);
    op.reads.push_back(lasting[random() % lasting.size()]);
    if (random() % 3 == 0) op.writes.push_back(lasting[random() % lasting.size()]);
    if (random() % 3 == 0) let_go(i);
    op.events.end = events;
    log.ops.push_back(std::move(op));
    if (random() % 2 == 0) let_go(i);
  }
  for (const std::uint32_t t : living) log.tensors[t].dies_at_seam = true;
  return log;
}

struct Lies {  // of a unit, at one moment
  std::uint64_t begin = 0, end = 0;
  bool near = false;
};

// Follows the step twice, moment by moment, as an executor does, and looks at all pairs.
void expect_no_overlap(const TensorUnits& step, const Plan& plan, const MoveTable& parts, const PlannedPlaces& places,
                       Bytes range) {
  const std::vector<Tensor>& tensors = step.units.trace.tensors;
  std::vector<Lies> lies(tensors.size());
  const auto unit_at = [&](ChunkRange chunks) {
    for (std::uint32_t u = 0; u < tensors.size(); ++u)
      if (step.units.where[u].first == chunks.first().value) return u;
    ADD_FAILURE() << "no unit lies there";
    return 0u;
  };
  const auto put = [&](std::uint32_t u, std::uint64_t offset) {
    lies[u] = {offset, offset + tensors[u].bytes.value, true};
    EXPECT_LE(lies[u].end, range.value);
    for (std::uint32_t other = 0; other < lies.size(); ++other) {
      if (other == u || !lies[other].near) continue;
      EXPECT_TRUE(lies[other].end <= lies[u].begin || lies[u].end <= lies[other].begin)
          << "units " << u << " and " << other;
    }
  };
  for (const auto& [chunks, offset] : places.at_start) put(unit_at(chunks), offset);
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t moment = 1; moment < step.moments.length; ++moment) {
      for (std::uint32_t u = 0; u < tensors.size(); ++u) {
        const Span<std::uint32_t> life = step.moments.lives[u];
        if (life.end == moment) lies[u].near = false;
        if (life.begin == moment && (plan.home.empty() || plan.home[u].value == 0)) {
          ASSERT_TRUE(places.births.contains(step.units.where[u].first)) << "unit " << u;
          put(u, places.births.at(step.units.where[u].first));
        }
      }
      for (std::uint32_t p = 0; p < parts.size(); ++p) {
        if (step.moments.ops[p].begin == moment) {
          for (const OpMoves::Fetch& fetch : parts[p].fetches) {
            ASSERT_TRUE(fetch.place.has_value());
            if (!lies[unit_at(fetch.chunks)].near) put(unit_at(fetch.chunks), *fetch.place);
          }
          for (const OpMoves::Made& made : parts[p].made) {
            ASSERT_TRUE(made.place.has_value());
            put(unit_at(made.chunks), *made.place);
          }
          for (const OpMoves::Made& made : parts[p].made) {  // a means dies again
            const std::uint32_t u = unit_at(made.chunks);
            if (!tensors[u].persistent && step.moments.lives[u].end < moment) lies[u].near = false;
          }
        }
        if (step.moments.ops[p].end == moment)
          for (const OpMoves::Departure& departure : parts[p].departures) lies[unit_at(departure.chunks)].near = false;
      }
    }
    for (std::uint32_t u = 0; u < tensors.size(); ++u)  // dead before the next step's first op
      if (!tensors[u].persistent && step.moments.lives[u].end == step.moments.length) lies[u].near = false;
    for (const auto& [chunks, offset] : places.at_start)
      EXPECT_TRUE(lies[unit_at(chunks)].near && lies[unit_at(chunks)].begin == offset) << "the step does not repeat";
  }
}

class OfPlans : public ::testing::TestWithParam<bool> {};  // that recompute

TEST_P(OfPlans, NoTwoTensorsLieInOnePlaceAtOneMoment) {
  const Machine machine{
      .tiers = {{.name = "gpu", .capacity = {}, .addressable = true}, {.name = "host", .capacity = {1 << 30}}},
      .links = {{.source = {1}, .target = {0}, .bytes_per_s = 1'000'000'000},
                {.source = {0}, .target = {1}, .bytes_per_s = 1'000'000'000}},
      .granule = {512},
      .can_recompute = GetParam(),
      .whole_tensors = true};
  const unsigned seeds = GetParam() ? 15 : 60;  // a search with recomputation takes longer
  unsigned placed = 0;
  std::size_t moves = 0, recomputed = 0;
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    const StepLog log = random_log(seed, 30);
    TensorUnits step = tensor_units(log, {64 << 10});
    if (GetParam()) tell_what_runs_again(step.units, log, std::vector<char>(log.ops.size(), 1), {64 << 10});
    for (const std::uint64_t percent : {100u, 70u, 50u}) {
      Machine less = machine;
      less.tiers[0].capacity = {peak_bytes(step.units.trace).value / 100 * percent + 40 * 512};
      auto plan = make_policy("vedette", 1)->prepare(step.units.trace, less);
      if (!plan) continue;
      if (const auto broken = check(step.units.trace, less, *plan))
        FAIL() << "seed " << seed << ": " << broken->message;
      MoveTable parts = tabulate(step.units, *plan, {64 << 10}, Fetches::as_planned);
      const Bytes range{less.tiers[0].capacity.value * 5 / 4};
      const auto places = arrange({step.units, step.moments}, *plan, parts, {.first = 0, .bytes = range});
      if (!places) continue;
      ++placed;
      moves += plan->moves.size();
      recomputed += plan->recomputations.size();
      expect_no_overlap(step, *plan, parts, *places, range);
      if (HasFailure()) FAIL() << "seed " << seed << ", " << percent << " %";
    }
  }
  EXPECT_GT(placed, seeds * 5 / 3);
  EXPECT_GT(moves, seeds * 8);
  EXPECT_EQ(recomputed > 5, GetParam()) << recomputed;
}

INSTANTIATE_TEST_SUITE_P(PlannedPlaces, OfPlans, ::testing::Bool(),
                         [](const auto& the) { return the.param ? "that_recompute" : "that_move"; });

// Two tensors leave one after the other, and each op makes another one.
TEST(PlannedPlaces, APlaceThatIsCopiedFromIsNoOthersWhereThereIsRoom) {
  constexpr std::uint32_t ops = 8;
  constexpr std::uint64_t bytes = 4096;
  StepLog log;
  for (std::uint32_t i = 0; i < ops; ++i) {
    log.tensors.push_back({.name = "t", .bytes = {bytes}, .offset = i * 64 * 1024, .birth = i + 1, .birth_op = i});
    log.tensors.back().dies_at_seam = true;
    log.ops.push_back({.name = "op", .time = {1000}, .reads = {}, .writes = {i}, .events = {i, i + 1}});
  }
  const TensorUnits step = tensor_units(log, {64 << 10});
  Plan plan;
  for (const std::uint32_t t : {0u, 1u})
    plan.moves.push_back(
        {.issue = {t}, .due = {t + 4}, .extent = {{t}, {}}, .source = {0}, .target = {1}, .verb = Verb::evict});
  const auto births = [&](Bytes range) {
    MoveTable parts = tabulate(step.units, plan, {64 << 10}, Fetches::as_planned);
    const auto places = arrange({step.units, step.moments}, plan, parts, {.first = 0, .bytes = range});
    std::vector<std::uint64_t> at;
    for (std::uint32_t t = 0; places && t < ops; ++t) at.push_back(places->births.at(step.units.where[t].first));
    return at;
  };
  const std::vector<std::uint64_t> wide = births({ops * bytes}), narrow = births({(ops - 2) * bytes});
  ASSERT_EQ(wide.size(), ops);
  ASSERT_EQ(narrow.size(), ops) << "places are given away before they are free where there is no room";
  for (const std::uint32_t left : {0u, 1u}) {
    for (std::uint32_t t = left + 1; t < left + 4; ++t) EXPECT_NE(wide[t], wide[left]) << t;
    EXPECT_NE(std::find(narrow.begin() + left + 1, narrow.end(), narrow[left]), narrow.end());
  }
}

TEST(PlannedPlaces, WhatFindsNoPlaceIsAnError) {
  const StepLog log = random_log(1, 10);
  const TensorUnits step = tensor_units(log, {64 << 10});
  Plan plan;
  plan.home.assign(step.units.trace.tensors.size(), TierIndex{0});
  MoveTable parts = tabulate(step.units, plan, {64 << 10}, Fetches::as_planned);
  const auto places = arrange({step.units, step.moments}, plan, parts, {.first = 0, .bytes = {4096}});
  ASSERT_FALSE(places);
  EXPECT_EQ(places.error().cause, Cause::infeasible);
}

}  // namespace
}  // namespace vedette::detail::planned_places_test
