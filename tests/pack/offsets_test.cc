// Offsets are sound, as low as the best there are where that can be known, and always the same.
#include "pack/offsets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <random>

#include "pack/csv.h"
#include "pack/online_pool.h"
#include "pack/sections.h"
#include "pack/verify.h"
#include "support/traces.h"

namespace vedette::pack::offsets_test {
namespace {

bool there(const Problem& problem, std::uint32_t b, Time when) {
  if (when < problem.buffers[b].life.begin || when >= problem.buffers[b].life.end) return false;
  return std::none_of(problem.away.begin(), problem.away.end(),
                      [&](const Away& a) { return a.buffer == b && a.when.begin <= when && when < a.when.end; });
}

bool meet(const Problem& problem, std::uint32_t a, std::uint32_t b) {
  for (Time when = 0; when < 24; ++when)
    if (there(problem, a, when) && there(problem, b, when)) return true;
  return false;
}

bool allowed(const Problem& problem, std::uint32_t b, std::uint64_t at) {
  const std::uint64_t bytes = problem.buffers[b].bytes.value, chunk = problem.chunk;
  if (at % problem.buffers[b].alignment != 0) return false;
  return chunk == 0 || bytes == 0 || (at + bytes - 1) / chunk - at / chunk == (bytes - 1) / chunk;
}

// The lowest peak there is: buffers in every order, each at the lowest offset, byte by byte. Nothing of the planner is
// used.
std::uint64_t lowest_peak(const Problem& problem) {
  std::vector<std::uint32_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::uint64_t lowest = ~std::uint64_t{0};
  std::vector<std::vector<bool>> meets(order.size(), std::vector<bool>(order.size()));
  for (std::uint32_t a = 0; a < order.size(); ++a)
    for (std::uint32_t b = 0; b < order.size(); ++b) meets[a][b] = meet(problem, a, b);
  do {
    std::vector<std::uint64_t> at(order.size(), 0);
    std::uint64_t peak = 0;
    for (std::size_t i = 0; i < order.size() && peak < lowest; ++i) {
      const std::uint32_t b = order[i];
      const std::uint64_t bytes = problem.buffers[b].bytes.value;
      if (bytes == 0 || !meets[b][b]) continue;
      const auto taken = [&](std::uint64_t begin) {
        return std::any_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i), [&](std::uint32_t a) {
          return meets[a][b] && at[a] < begin + bytes && begin < at[a] + problem.buffers[a].bytes.value;
        });
      };
      while (!allowed(problem, b, at[b]) || taken(at[b])) ++at[b];
      peak = std::max(peak, at[b] + bytes);
    }
    lowest = std::min(lowest, peak);
  } while (std::next_permutation(order.begin(), order.end()));
  return lowest;
}

struct Kind {
  bool aligned = false, away = false, chunked = false;
};

Problem random_problem(std::uint64_t seed, std::size_t most, Kind kind) {
  std::mt19937_64 random(seed);
  Problem problem;
  const std::size_t count = 1 + random() % most;
  const std::uint64_t one = std::uint64_t{1} << random() % 3;
  for (std::uint32_t b = 0; b < count; ++b) {
    const Time begin = static_cast<Time>(random() % 12), end = begin + 1 + static_cast<Time>(random() % 11);
    problem.buffers.push_back({.life = {begin, end},
                               .bytes = {1 + random() % 12},
                               .alignment = kind.aligned ? std::uint64_t{1} << random() % 3 : one});
    if (kind.away && end - begin > 3 && random() % 2 == 0) problem.away.push_back({b, {begin + 1, end - 1}});
  }
  if (kind.chunked) problem.chunk = 8;
  return problem;
}

TEST(Offsets, NothingNeedsNoRoom) {
  EXPECT_EQ(plan_offsets({}).peak.value, 0u);
  const Layout layout =
      plan_offsets({.buffers = {{.life = {3, 3}, .bytes = {7}}, {.life = {1, 2}, .bytes = {0}}}, .away = {}});
  EXPECT_EQ(layout.offset, (std::vector<std::uint64_t>{0, 0}));
  EXPECT_EQ(layout.peak.value, 0u);
}

TEST(Offsets, AreAsLowAsAnyForFewBuffers) {
  for (std::uint64_t seed = 1; seed <= 240; ++seed) {
    const Kind kind{.aligned = seed % 2 == 0, .away = seed % 3 == 0, .chunked = seed % 5 == 0};
    const Problem problem = random_problem(seed, seed % 8 == 0 ? 7 : 6, kind);
    const Layout layout = plan_offsets(problem);
    EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt) << "seed " << seed;
    EXPECT_EQ(layout.peak.value, lowest_peak(problem)) << "seed " << seed << ", " << layout.how;
    EXPECT_LE(layout.bound, layout.peak);
  }
}

TEST(Offsets, OfMixedAlignmentsAreAsLowAsAny) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Problem problem = random_problem(seed, 8, {.aligned = true, .away = seed % 3 == 0});
    if (problem.buffers.size() < 8) continue;
    const Layout layout = plan_offsets(problem);
    EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt) << "seed " << seed;
    EXPECT_EQ(layout.peak.value, lowest_peak(problem)) << "seed " << seed << ", " << layout.how;
    EXPECT_LE(layout.bound, layout.peak) << "seed " << seed;
  }
}

// {begin, end, bytes, alignment}, with the lowest peak that CP-SAT (OR-Tools 9.15) proves: 13, 24 and 27 buffers.
struct Known {
  std::uint64_t lowest;
  std::vector<std::array<std::uint64_t, 4>> buffers;
};
const std::vector<Known> known = {
    {1107,
     {{23, 26, 280, 4},
      {7, 10, 327, 128},
      {24, 31, 108, 8},
      {4, 11, 84, 4},
      {19, 23, 104, 1},
      {13, 17, 36, 2},
      {13, 28, 162, 4},
      {5, 20, 260, 16},
      {19, 23, 348, 128},
      {4, 8, 7, 16},
      {20, 31, 134, 2},
      {16, 25, 143, 2},
      {18, 25, 86, 8}}},
    {2405, {{27, 36, 400, 128}, {14, 23, 301, 8},  {5, 18, 263, 128}, {20, 30, 96, 2},   {14, 19, 73, 2},
            {17, 30, 356, 1},   {19, 26, 232, 4},  {19, 20, 271, 2},  {1, 2, 98, 8},     {19, 20, 399, 128},
            {10, 18, 303, 8},   {16, 20, 328, 16}, {15, 16, 340, 2},  {14, 25, 143, 64}, {17, 32, 43, 16},
            {10, 23, 118, 16},  {0, 2, 289, 2},    {12, 14, 149, 64}, {2, 3, 351, 1},    {6, 10, 27, 128},
            {12, 24, 204, 64},  {2, 12, 323, 8},   {24, 35, 139, 32}, {2, 7, 171, 1}}},
    {1555,
     {{10, 23, 68, 32},   {27, 30, 147, 64}, {8, 18, 32, 16},    {20, 26, 368, 2},  {11, 12, 264, 1}, {3, 15, 254, 32},
      {23, 24, 175, 128}, {1, 2, 121, 32},   {2, 5, 175, 4},     {18, 20, 245, 32}, {2, 7, 83, 2},    {21, 36, 67, 128},
      {26, 34, 166, 64},  {19, 26, 19, 16},  {24, 34, 395, 128}, {16, 25, 388, 1},  {28, 42, 59, 32}, {17, 25, 51, 2},
      {12, 19, 102, 128}, {12, 23, 4, 16},   {29, 39, 370, 8},   {7, 20, 297, 4},   {0, 11, 41, 2},   {3, 15, 90, 1},
      {4, 16, 249, 1},    {21, 29, 258, 4},  {26, 39, 273, 16}}}};

TEST(Offsets, OfMixedAlignmentsAreAsLowAsAnotherSolverProves) {
  for (const Known& each : known) {
    Problem problem;
    for (const auto& [begin, end, bytes, alignment] : each.buffers)
      problem.buffers.push_back(
          {.life = {static_cast<Time>(begin), static_cast<Time>(end)}, .bytes = {bytes}, .alignment = alignment});
    const Layout layout = plan_offsets(problem);
    EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt);
    EXPECT_EQ(layout.peak.value, each.lowest) << each.buffers.size() << " buffers, " << layout.how;
    EXPECT_LE(layout.bound.value, each.lowest);
  }
}

TEST(Offsets, OfTwoBuffersReachWhatLivesAtOnce) {
  const Problem mixed{
      .buffers = {{.life = {0, 1}, .bytes = {10}, .alignment = 16}, {.life = {0, 1}, .bytes = {5}, .alignment = 1}},
      .away = {}};
  EXPECT_EQ(most_live(mixed).value, 15u);
  EXPECT_EQ(plan_offsets(mixed).peak.value, 15u);
  const Problem padded{
      .buffers = {{.life = {0, 1}, .bytes = {5}, .alignment = 8}, {.life = {0, 1}, .bytes = {6}, .alignment = 4}},
      .away = {}};
  EXPECT_EQ(most_live(padded).value, 13u);  // 8 for one of them and all that the other has, where it has least padding
  EXPECT_EQ(plan_offsets(padded).peak.value, 13u);
}

TEST(Offsets, AreSoundWhateverIsAsked) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Problem problem =
        random_problem(seed, 60, {.aligned = seed % 2 == 0, .away = seed % 3 == 0, .chunked = seed % 5 == 0});
    const Layout layout = plan_offsets(problem, std::nullopt, {.greedy = 1'000'000, .exact = 300'000});
    EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt) << "seed " << seed;
    EXPECT_LE(most_live(problem), layout.peak);
  }
}

TEST(Offsets, StopAtTheCapacityThatIsAskedFor) {
  const Problem problem{
      .buffers = {{.life = {0, 2}, .bytes = {4}}, {.life = {1, 3}, .bytes = {4}}, {.life = {2, 4}, .bytes = {4}}},
      .away = {}};
  EXPECT_LE(plan_offsets(problem, Bytes{100}).peak.value, 100u);
  EXPECT_EQ(plan_offsets(problem, Bytes{8}).peak.value, 8u);
  EXPECT_EQ(plan_offsets(problem, Bytes{3}).peak.value, 8u);  // there is no such plan; this one is sound
}

TEST(Offsets, AreTheSameEachTime) {
  const Problem problem = random_problem(5, 60, {});
  const Layout first = plan_offsets(problem), second = plan_offsets(problem);
  EXPECT_EQ(first.offset, second.offset);
  EXPECT_EQ(first.how, second.how);
}

TEST(Offsets, OfAProgramThatRepeatsItselfRepeat) {
  Problem problem;
  problem.buffers.push_back({.life = {0, 1000}, .bytes = {5}});
  const Problem once = random_problem(11, 12, {});
  for (Time round = 0; round < 40; ++round)
    for (const Buffer& b : once.buffers)
      problem.buffers.push_back({.life = {b.life.begin + round * 25, b.life.end + round * 25}, .bytes = b.bytes});
  const Layout layout = plan_offsets(problem);
  EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt);
  const std::size_t n = once.buffers.size();
  for (std::size_t i = 1; i < problem.buffers.size() - n; ++i) EXPECT_EQ(layout.offset[i], layout.offset[i + n]);
}

TEST(Offsets, OfManyBuffersAreFoundAndSound) {
  std::mt19937_64 random(3);
  Problem problem;
  for (std::size_t i = 0; i < 60'000; ++i) {
    const auto begin = static_cast<Time>(random() % 100'000);
    problem.buffers.push_back(
        {.life = {begin, begin + 1 + static_cast<Time>(random() % 300)}, .bytes = {1 + random() % 100'000}});
  }
  const Layout layout = plan_offsets(problem);
  EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt);
  EXPECT_LE(static_cast<double>(layout.peak.value), 1.3 * static_cast<double>(most_live(problem).value));
}

TEST(Offsets, OfManyBuffersAreNotAboveAPoolThatKnowsNoFuture) {
  std::mt19937_64 random(3);
  Problem problem;
  for (std::size_t i = 0; i < 60'000; ++i) {
    const auto begin = static_cast<Time>(random() % 60'000);
    const std::uint64_t bytes = std::uint64_t{1} << random() % 20;
    problem.buffers.push_back(
        {.life = {begin, begin + 1 + static_cast<Time>(random() % 1000)}, .bytes = {bytes + random() % bytes}});
  }
  const Layout layout = plan_offsets(problem);
  EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt);
  EXPECT_LE(layout.peak, online_pool_peak(problem));
  for (Buffer& buffer : problem.buffers) buffer.alignment = std::uint64_t{1} << random() % 7;
  const Layout mixed = plan_offsets(problem);
  EXPECT_EQ(find_fault(problem, mixed.offset, mixed.peak), std::nullopt);
  EXPECT_LE(mixed.peak, online_pool_peak(problem));
}

TEST(Offsets, OfManyShortLivedBuffersReachWhatLivesAtOnce) {
  std::mt19937_64 random(3);
  Problem problem;
  for (std::size_t i = 0; i < 62'185; ++i) {
    const auto begin = static_cast<Time>(random() % 62'185);
    problem.buffers.push_back(
        {.life = {begin, begin + 1 + static_cast<Time>(random() % 20)}, .bytes = {512 * (1 + random() % 64)}});
  }
  const Layout layout = plan_offsets(problem);
  EXPECT_EQ(find_fault(problem, layout.offset, layout.peak), std::nullopt);
  EXPECT_EQ(layout.peak, most_live(problem)) << layout.how;
}

Problem given(const std::string& name) {
  const auto file = std::filesystem::path(testing::data_folder()) / "pack" / name;
  if (!std::filesystem::exists(file)) return {};
  const std::string text = testing::read_text(file);
  return std::move(parse_lifetimes(text)).value().problem;
}

TEST(GivenLifetimes, OfTheChallengingSuiteFitTheirCapacity) {
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    const Problem problem = given(std::string(name) + ".1048576.csv");
    if (problem.buffers.empty())
      GTEST_SKIP() << "no pack/ in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
    const Layout layout = plan_offsets(problem, Bytes{1048576});
    EXPECT_EQ(find_fault(problem, layout.offset, Bytes{1048576}), std::nullopt) << name;
  }
}

TEST(GivenLifetimes, OfTrainingStepsComeCloseToWhatLives) {
  const Problem resnet = given("resnet50.csv"), pangu = given("pangu_2.6B.csv");
  if (resnet.buffers.empty() || pangu.buffers.empty())
    GTEST_SKIP() << "no pack/ in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
  const Layout all = plan_offsets(resnet), most = plan_offsets(pangu);
  EXPECT_EQ(find_fault(resnet, all.offset, most_live(resnet)), std::nullopt);
  EXPECT_EQ(find_fault(pangu, most.offset, most.peak), std::nullopt);
  EXPECT_LT(static_cast<double>(most.peak.value), 1.0334 * static_cast<double>(most_live(pangu).value));
}

// Three neighbours, of which the middle one and then one beside it die, while the third lives on.
TEST(OnlinePool, JoinsAHoleWithThoseOnBothSides) {
  constexpr std::uint64_t size = pool_granule;
  for (const std::uint32_t second : {0u, 2u}) {
    Problem problem;
    for (std::uint32_t b = 0; b < 4; ++b)
      problem.buffers.push_back({.life = {0, b == 1 ? 1u : b == second ? 2u : 3u}, .bytes = {size}, .alignment = 1});
    problem.buffers.push_back({.life = {2, 3}, .bytes = {2 * size}, .alignment = 1});
    EXPECT_EQ(online_pool_peak(problem), Bytes{4 * size}) << second;
  }
}

}  // namespace
}  // namespace vedette::pack::offsets_test
