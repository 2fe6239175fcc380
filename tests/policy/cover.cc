// Stays chosen as a cover: that as little moves as possible, and that prices of the link move it elsewhere.
#include "policy/vedette/cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "policy/vedette/layout.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/sweep.h"
#include "support/generate_trace.h"
#include "support/small_steps.h"
#include "support/step_kinds.h"
#include "support/traces.h"
#include "vedette/check.h"

namespace vedette::planning::cover_test {
namespace {

using testing::kilo;
using testing::op;
using testing::step;

Setting setting_with(const Machine& machine) { return setting_of(machine, {1}); }

std::vector<Stay> cover(const Trace& trace, const Uses& uses, const Setting& setting, const LinkPrices& prices) {
  return planning::cover(trace, uses, costs_of(trace, uses, setting), setting, prices);
}

struct Moved {
  std::int64_t bytes = 0, bytes_at_end = 0;  // at_end: in the last third of the ops
};

Moved moved_by(const Trace& trace, const std::vector<Stay>& stays) {
  Moved moved;
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  for (const Stay& stay : stays) {
    const auto bytes = static_cast<std::int64_t>(trace.tensors[stay.tensor].bytes.value);
    moved.bytes += (stay.writes ? bytes : 0) + (stay.returns ? bytes : 0);
    if (stay.returns && stay.next_use % ops >= ops / 3 * 2) moved.bytes_at_end += bytes;
    if (stay.writes && stay.last_use % ops >= ops / 3 * 2) moved.bytes_at_end += bytes;
  }
  return moved;
}

TEST(Cover, HasNoStaysWhereEverythingFits) {
  const Trace one = step(2, {op(10'000, {{0}}), op(10'000, {{1}})});
  const Setting setting = setting_with(testing::two_tiers({2 * kilo}));
  EXPECT_TRUE(cover(one, uses_of(one), setting, {}).empty());
  EXPECT_TRUE(cover({}, uses_of({}), setting, {}).empty());
}

// Ops that read one tensor each, drawn from the seed.
Trace reads(std::uint64_t seed) {
  std::uint64_t state = seed * 977;
  const auto draw = [&](std::uint64_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state >> 33) % below);
  };
  Trace one = step(5, {});
  for (std::uint32_t i = 0; i < 12; ++i) one.ops.push_back(op(100'000, {{draw(5)}}));
  return one;
}

// As bits, the ops at which a tensor gives room between two uses, if it takes room from the op before the latter on.
std::uint32_t room_between(std::uint32_t last_use, std::uint32_t next_use, std::uint32_t ops) {
  std::uint32_t bits = 0;
  for (std::uint32_t at = last_use + 1; at + 1 < next_use; ++at) bits |= 1U << at % ops;
  return bits;
}

// Whether of `used` tensors no more than `near` are left at each of the ops.
bool enough(const std::vector<std::uint32_t>& away, std::uint32_t ops, std::size_t used, std::size_t near) {
  for (std::uint32_t at = 0; at < ops; ++at) {
    const auto gone =
        std::count_if(away.begin(), away.end(), [&](std::uint32_t bits) { return (bits >> at & 1) != 0; });
    if (used - static_cast<std::size_t>(gone) > near) return false;
  }
  return true;
}

std::size_t used_tensors(const Uses& uses) {
  return static_cast<std::size_t>(
      std::count_if(uses.tensors.begin(), uses.tensors.end(), [](const TensorUses& t) { return !t.uses.empty(); }));
}

// The fewest stays with which `near` tensors are left; nullopt: no set is enough. All of the 2^12 are tried.
std::optional<std::size_t> fewest_stays(const Trace& trace, const Uses& uses, std::size_t near) {
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  std::vector<std::uint32_t> gaps, away;
  for (const TensorUses& tensor : uses.tensors) {
    for (std::size_t use = 0; use < tensor.uses.size(); ++use) {
      const bool last = use + 1 == tensor.uses.size();
      gaps.push_back(
          room_between(tensor.uses[use].op, last ? tensor.uses.front().op + ops : tensor.uses[use + 1].op, ops));
    }
  }
  std::optional<std::size_t> fewest;
  for (std::uint32_t chosen = 0; chosen < 1U << gaps.size(); ++chosen) {
    away.clear();
    for (std::size_t g = 0; g < gaps.size(); ++g)
      if ((chosen >> g & 1) != 0) away.push_back(gaps[g]);
    if ((!fewest || away.size() < *fewest) && enough(away, ops, used_tensors(uses), near)) fewest = away.size();
  }
  return fewest;
}

TEST(Cover, OfEqualTensorsMovesHardlyMoreThanTheFewest) {
  std::size_t covers = 0, fewest = 0, compared = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Trace one = reads(seed);
    const Uses uses = uses_of(one);
    const auto least = fewest_stays(one, uses, 3);
    if (!least) continue;
    const Setting setting = setting_with(testing::two_tiers({3 * kilo}));
    const std::vector<Stay> stays = cover(one, uses, setting, {});
    EXPECT_GE(stays.size(), *least) << "seed " << seed;
    std::vector<std::uint32_t> away;
    for (const Stay& stay : stays) {
      EXPECT_FALSE(stay.writes) << "seed " << seed;
      away.push_back(room_between(stay.last_use, stay.next_use, 12));
    }
    EXPECT_TRUE(enough(away, 12, used_tensors(uses), 3)) << "seed " << seed;
    for (std::uint32_t& each : away) {  // none is superfluous
      const std::uint32_t bits = std::exchange(each, 0);
      EXPECT_FALSE(enough(away, 12, used_tensors(uses), 3)) << "seed " << seed;
      each = bits;
    }
    covers += stays.size();
    fewest += *least;
    ++compared;
  }
  EXPECT_GT(compared, 100U);
  EXPECT_LE(covers, fewest + fewest / 50);
}

TEST(Cover, WritesWhatChangedSinceItLastLeft) {
  // Room for one of two tensors, which take turns. Tensor 0 changes once, and leaves twice.
  const Trace one = step(2, {op(100'000, {}, {{0}}), op(100'000, {}), op(100'000, {{1}}), op(100'000, {}),
                             op(100'000, {{0}}), op(100'000, {}), op(100'000, {{1}}), op(100'000, {})});
  std::vector<Stay> stays = cover(one, uses_of(one), setting_with(testing::two_tiers({kilo})), {});
  std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.last_use < b.last_use; });
  ASSERT_EQ(stays.size(), 4U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(stays[i].tensor, i % 2);
    EXPECT_EQ(stays[i].last_use, 2 * i);
    EXPECT_EQ(stays[i].next_use, 2 * i + 4);
    EXPECT_EQ(stays[i].writes, i == 0);
  }
}

// The optimizer's many bytes in little time are several stretches.
TEST(Cover, MovesOtherTensorsWhereTheLinkCostsMore) {
  const Trace one = testing::eager_step(24);
  const Uses uses = uses_of(one);
  const Setting setting = setting_with(testing::on_a_disk({peak_bytes(one).value / 100 * 35}));
  LinkPrices dear;
  dear.of[LinkPrices::stretches - 2] = dear.of[LinkPrices::stretches - 1] = 4;
  const Moved even = moved_by(one, cover(one, uses, setting, {})),
              uneven = moved_by(one, cover(one, uses, setting, dear));
  EXPECT_LT(uneven.bytes_at_end, even.bytes_at_end * 3 / 4);
  EXPECT_GE(uneven.bytes, even.bytes);
}

TEST(Cover, IsLaidOutIntoPlansThatTheJudgeAccepts) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Trace one = testing::generate_trace(seed, testing::random_shape(seed));
    const Uses uses = uses_of(one);
    const std::uint64_t least = testing::smallest_fast_tier(one, {kilo}).value,
                        most = testing::ample_fast_tier(one, {kilo}).value;
    for (const std::uint64_t eighths : {0U, 2U, 5U}) {
      const Machine machine = testing::two_tiers({least + (most - least) / 8 * eighths});
      const Setting setting = setting_with(machine);
      const auto laid_out = lay_out(one, uses, costs_of(one, uses, setting), setting, cover(one, uses, setting, {}));
      ASSERT_TRUE(laid_out) << "seed " << seed;
      const auto refused = check(one, machine, plan_of(one, setting, *laid_out));
      EXPECT_FALSE(refused) << "seed " << seed << ": " << refused->message;
    }
  }
}

}  // namespace
}  // namespace vedette::planning::cover_test
