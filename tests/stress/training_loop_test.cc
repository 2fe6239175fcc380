// Evictions are atomic beside a training loop that runs in a quarter of its memory. Some threads read and write the
// arena's memory unannounced, others map and unmap memory of their own. Seeded; 4 s for each policy,
// or VEDETTE_STRESS_SECONDS.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "session/loop.h"

namespace vedette::training_loop_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;

double stress_seconds() {
  const char* text = std::getenv("VEDETTE_STRESS_SECONDS");
  const double seconds = text == nullptr ? 4 : std::atof(text);
  return seconds > 0 ? seconds : 4;
}

struct Seen {  // what must stay zero, and what must not
  std::atomic<std::uint64_t> wrong_words{0}, foreign_changes{0}, inside{0};
  std::atomic<std::uint64_t> turns{0}, mappings{0};
};

// Every word tells which block, where in it, and which version: a zero page, a foreign byte and an old page all differ.
std::uint64_t word_of(std::size_t block, std::uint64_t version, std::size_t i) {
  return (block + 1) * 0x9E3779B97F4A7C15u + version * 0xD1B54A32D192ED03u + i;
}

void touch(Session& session, std::uint64_t seed, const std::atomic<bool>& stop, Seen& seen) {
  std::mt19937_64 random(seed);
  constexpr std::size_t blocks = 12, pieces = 8;
  std::vector<Block> own;
  std::array<std::array<std::uint64_t, pieces>, blocks> version{};
  const auto write = [&](std::size_t b, std::size_t p) {
    const std::size_t per_piece = own[b].count() / pieces;
    for (std::size_t i = p * per_piece; i < (p + 1) * per_piece; ++i)
      own[b][i] = word_of(seed * blocks + b, version[b][p], i);
  };
  for (std::size_t b = 0; b < blocks; ++b) {
    own.emplace_back(session, 40'000 + b * 20'000, b % 3 == 0);
    for (std::size_t p = 0; p < pieces; ++p) write(b, p);
  }
  while (!stop) {
    const std::size_t b = random() % blocks, p = random() % pieces;
    const std::size_t per_piece = own[b].count() / pieces;
    for (std::size_t i = p * per_piece; i < (p + 1) * per_piece; ++i)
      if (own[b][i] != word_of(seed * blocks + b, version[b][p], i)) ++seen.wrong_words;
    if (random() % 2 == 0) {
      ++version[b][p];
      write(b, p);
    }
    if (random() % 64 == 0) {  // dies and is born elsewhere
      own[b].drop();
      own[b] = Block(session, 40'000 + random() % 200'000);
      for (std::size_t q = 0; q < pieces; ++q) write(b, q);
    }
    ++seen.turns;
  }
}

void map_and_unmap(std::uint64_t seed, const std::atomic<bool>& stop, Seen& seen) {
  std::mt19937_64 random(seed);
  struct Own {
    std::uint64_t* at = nullptr;
    std::size_t bytes = 0;
    std::uint64_t mark = 0;
  };
  std::array<Own, 24> own{};
  const auto drop = [&](Own& one) {
    if (one.at == nullptr) return;
    if (*static_cast<volatile std::uint64_t*>(one.at) != one.mark) ++seen.foreign_changes;
    ::munmap(one.at, one.bytes);
  };
  while (!stop) {
    Own& one = own[random() % own.size()];
    drop(one);
    const std::uint64_t pick = random();
    one.bytes = pick % 3 == 0 ? 64 << 10 : (pick / 8 % 600 + 1) * 4096;
    void* const at = ::mmap(nullptr, one.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    one.at = at == MAP_FAILED ? nullptr : static_cast<std::uint64_t*>(at);
    if (one.at == nullptr) continue;
    if (Session::owns(at)) ++seen.inside;
    one.mark = random();
    *one.at = one.mark;
    ++seen.mappings;
  }
  for (Own& one : own) drop(one);
}

class TrainingLoop : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainingLoop, LosesNoByteBesideThreadsThatTouchAndMap) {
  constexpr std::size_t layers = 8, bytes = 200'000;
  constexpr std::uint64_t compared = 6;  // losses of the first steps, and whole repetitions of them
  const auto first_losses = [&](Session& session) {
    Loop loop(session, layers, bytes);
    std::vector<std::uint64_t> losses;
    for (std::uint64_t s = 0; s < compared; ++s) losses.push_back(loop.step(s));
    losses.push_back(loop.state());
    return losses;
  };
  const std::vector<std::uint64_t> expected = first_losses(*open_session({64 << 20}, "host", GetParam()));
  const auto session = open_session({3 << 20}, "nvme:.", GetParam());
  Seen seen;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 2; ++t) threads.emplace_back([&, t] { touch(*session, t, stop, seen); });
  for (std::uint64_t t = 0; t < 2; ++t) threads.emplace_back([&, t] { map_and_unmap(100 + t, stop, seen); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(stress_seconds());
  const auto enough = [&] { return seen.turns > 50 && seen.mappings > 100 && session->counters().faults > 10; };
  std::uint64_t rounds = 0;
  do {
    EXPECT_EQ(first_losses(*session), expected) << "round " << rounds;
    ++rounds;
  } while (!HasFailure() && (std::chrono::steady_clock::now() < end || (!enough() && rounds < 50)));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen.wrong_words, 0u);
  EXPECT_EQ(seen.foreign_changes, 0u);
  EXPECT_EQ(seen.inside, 0u);
  EXPECT_GT(seen.turns, 50u);
  EXPECT_GT(seen.mappings, 100u);
  EXPECT_GT(session->counters().faults, 10u);
  EXPECT_FALSE(session->take_error());
  std::printf("%lu rounds of %lu steps, %lu pieces touched, %lu mappings, %lu faults\n", rounds, compared,
              seen.turns.load(), seen.mappings.load(), session->counters().faults);
}
INSTANTIATE_TEST_SUITE_P(Policies, TrainingLoop, ::testing::Values("sentinel", "vedette"));

}  // namespace
}  // namespace vedette::training_loop_test
