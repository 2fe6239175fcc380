// Steps of several lengths, each with a plan of its own, that follow each other in any order: a step begins with what
// another one's plan left in fast memory. In a replay, whose times are the same in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "session/replay.h"

namespace vedette::seam_test {
namespace {

using testing::LinkStore;
using testing::ReplayPlayer;

// Layers with weights and moments; a step's length is the size of its activations.
class Lengths {
 public:
  static constexpr std::size_t chunk = 64 << 10, layers = 12, weight = 4 * chunk, kinds = 4;

  explicit Lengths(ReplayPlayer& player) : player_(player) {
    for (std::size_t l = 0; l < layers; ++l) {
      weights_.push_back(player.filled(weight, l));
      player.is_weight(weights_.back());
      moments_.push_back(player.filled(weight, l + 50));
    }
  }
  // Chunks that the plan of the step had near as it began; none: it had no plan.
  std::set<std::uint32_t> step(std::size_t kind) {
    std::set<std::uint32_t> near;
    const std::size_t bytes = (kind + 1) * 2 * chunk;
    player_.step([&] {
      std::vector<std::size_t> made = {player_.make(bytes, false)};
      player_.fill(made[0], 1);
      for (std::size_t l = 0; l < layers; ++l)
        made.push_back(player_.made("forward", bytes, {made.back(), weights_[l]}));
      for (std::size_t l = layers; l-- > 0;) {
        player_.changed("backward", {made[l]}, {made[l + 1], weights_[l]});
        player_.drop(made.back());
        made.pop_back();
      }
      player_.drop(made.back());
      for (std::size_t l = 0; l < layers; ++l) player_.changed("update", {weights_[l], moments_[l]});
      near = player_.planned_near();
    });
    return near;
  }
  void settle() {
    for (std::size_t kind = 0; kind < kinds; ++kind)
      for (int again = 0; again < 12; ++again) step(kind);
  }
  // ns of all steps, once each kind has settled
  double time_of(const std::vector<std::size_t>& order) {
    settle();
    const Nanoseconds began = player_.time();
    const auto before = player_.counters();
    for (const std::size_t kind : order) step(kind);
    const auto after = player_.counters();
    in = (after.bytes_in.value - before.bytes_in.value) >> 16,
    out = (after.bytes_out.value - before.bytes_out.value) >> 16;
    return static_cast<double>((player_.time() - began).value);
  }
  std::uint64_t in = 0, out = 0;

 private:
  ReplayPlayer& player_;
  std::vector<std::size_t> weights_, moments_;
};

// Whatever length comes next, its plan has these near as it begins: fetching them would be for nothing.
TEST(Seam, WhatAllLengthsHaveNearAsTheyBeginStaysNear) {
  for (const std::uint32_t frames : {64u, 96u, 120u}) {
    SCOPED_TRACE(frames);
    ReplayPlayer player({frames * Lengths::chunk}, "vedette");
    Lengths program(player);
    program.settle();
    std::mt19937_64 random(7);
    std::map<std::size_t, std::set<std::uint32_t>> near;  // by length, of its latest plan
    const auto step = [&] {
      const std::size_t kind = random() % Lengths::kinds;
      near[kind] = program.step(kind);
    };
    for (int before = 0; before < 48; ++before) step();  // plans for steps in turns are made meanwhile
    ASSERT_EQ(near.size(), Lengths::kinds);
    std::size_t near_for_all = 0, away = 0;
    for (int steps = 0; steps < 12; ++steps) {
      std::set<std::uint32_t> in_all = near[0];
      for (const auto& [kind, of_kind] : near)
        std::erase_if(in_all, [&of_kind = of_kind](std::uint32_t chunk) { return !of_kind.contains(chunk); });
      near_for_all += in_all.size();
      away += static_cast<std::size_t>(
          std::ranges::count_if(in_all, [&](std::uint32_t chunk) { return !player.is_near(chunk); }));
      step();
    }
    EXPECT_GT(near_for_all, 12u * 4) << "else it shows nothing";
    EXPECT_EQ(away, 0u) << "of " << near_for_all;
  }
}

TEST(Seam, StepsInAnyOrderTakeHardlyLongerThanEachKindAlone) {
  std::vector<std::size_t> sorted, mixed;
  for (std::size_t kind = 0; kind < Lengths::kinds; ++kind) sorted.insert(sorted.end(), 16, kind);
  mixed = sorted;
  std::mt19937_64 random(7);
  for (std::size_t i = mixed.size(); i > 1; --i) std::swap(mixed[i - 1], mixed[random() % i]);
  for (const std::uint32_t frames : {64u, 96u, 120u})
    for (const std::int64_t moving : {1, 2, 4}) {
      const Nanoseconds computing{LinkStore::of_a_chunk.value / moving};
      double took[2];
      std::uint64_t in[2], out[2];
      for (const bool is_mixed : {false, true}) {
        ReplayPlayer player({frames * Lengths::chunk}, "vedette", computing);
        Lengths program(player);
        took[is_mixed] = program.time_of(is_mixed ? mixed : sorted);
        in[is_mixed] = program.in, out[is_mixed] = program.out;
      }
      std::printf("%u frames, a chunk moves in %ld: %.3f of the time in order; in %lu / %lu, out %lu / %lu\n", frames,
                  static_cast<long>(moving), took[1] / took[0], in[1], in[0], out[1], out[0]);
      EXPECT_LE(took[1], took[0] * 1.05);
      EXPECT_LE(in[1], in[0] * 105 / 100) << "(as one plan is cheapest by itself: 1.25)";
    }
}

}  // namespace
}  // namespace vedette::seam_test
