// Publishing "away" is atomic under everything at once: threads that write, read, map, unmap, and hand chunks to system
// calls, while chunks go away, come back, go on excursions and change their kind. Seeded; runs 5 s for each memory, or
// VEDETTE_STRESS_SECONDS in total for each, and longer where that is too short for a hundred of everything.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/fd.h"
#include "os/test_pager.h"

namespace vedette::going_away_test {
namespace {

using testing::Open;
using testing::Pager;

constexpr std::uint32_t chunks = 10, frames = 6;
// chunks [0, counted) hold counters, the next one serves system calls, the rest are never written
constexpr std::uint32_t counted = 7;
constexpr std::uint32_t for_calls = counted;
constexpr std::size_t writers = 3, pages = 16;

double stress_seconds() {
  const char* text = std::getenv("VEDETTE_STRESS_SECONDS");
  const double seconds = text == nullptr ? 5 : std::atof(text);
  return seconds > 0 ? seconds : 5;
}

struct Seen {  // what must stay zero, and what must not
  std::atomic<std::uint64_t> wrong_counts{0}, wrong_constants{0}, wrong_calls{0}, mapped_inside{0}, foreign_changes{0};
  std::atomic<std::uint64_t> writes{0}, reads{0}, calls{0}, mappings{0};
};

std::uint64_t volatile_read(const std::byte* p) { return *reinterpret_cast<const volatile std::uint64_t*>(p); }
void volatile_write(std::byte* p, std::uint64_t v) { *reinterpret_cast<volatile std::uint64_t*>(p) = v; }
std::uint64_t constant(std::size_t c, std::size_t word) { return (c + 3) * 0x9E3779B97F4A7C15u + word; }

void write_counters(Pager& pager, std::size_t me, std::uint64_t seed, const std::atomic<bool>& stop, Seen& seen) {
  std::mt19937_64 random(seed + me);
  std::vector<std::uint64_t> count(counted * pages);
  const std::size_t stride = pager.chunk_bytes() / pages;
  while (!stop.load(std::memory_order_relaxed)) {
    const std::size_t at = random() % count.size();
    std::byte* const slot = pager.chunk(static_cast<std::uint32_t>(at / pages)) + at % pages * stride + me * 8;
    for (int i = 0; i < 30; ++i) {
      if (volatile_read(slot) != count[at]) ++seen.wrong_counts;
      volatile_write(slot, ++count[at]);
    }
    ++seen.writes;
  }
}

void read_constants(Pager& pager, std::uint64_t seed, const std::atomic<bool>& stop, Seen& seen) {
  std::mt19937_64 random(seed);
  const std::size_t words = pager.chunk_bytes() / 8;
  while (!stop.load(std::memory_order_relaxed)) {
    const auto c = static_cast<std::uint32_t>(for_calls + 1 + random() % (chunks - for_calls - 1));
    for (int i = 0; i < 30; ++i) {
      const std::size_t word = random() % words;
      if (volatile_read(pager.chunk(c) + word * 8) != constant(c, word)) ++seen.wrong_constants;
    }
    ++seen.reads;
  }
}

// A file is written from the chunk and read into it: the kernel's copy loops meet chunks on their way out.
void call_the_kernel(Pager& pager, const std::atomic<bool>& stop, Seen& seen) {
  const Fd file{::memfd_create("stress", MFD_CLOEXEC)};
  std::byte* const buffer = pager.chunk(for_calls);
  const std::size_t bytes = pager.chunk_bytes();
  for (std::uint64_t version = 1; !stop.load(std::memory_order_relaxed); ++version) {
    for (std::size_t page = 0; page < bytes; page += 4096) volatile_write(buffer + page, version + page);
    if (::pwrite(file.get(), buffer, bytes, 0) != static_cast<ssize_t>(bytes)) ++seen.wrong_calls;
    for (std::size_t page = 0; page < bytes; page += 4096) volatile_write(buffer + page, 0);
    if (::pread(file.get(), buffer, bytes, 0) != static_cast<ssize_t>(bytes)) ++seen.wrong_calls;
    for (std::size_t page = 0; page < bytes; page += 4096) {
      if (volatile_read(buffer + page) != version + page) ++seen.wrong_calls;
    }
    ++seen.calls;
  }
}

void map_and_unmap(Pager& pager, std::uint64_t seed, const std::atomic<bool>& stop, Seen& seen) {
  std::mt19937_64 random(seed);
  struct Own {
    std::byte* at = nullptr;
    std::size_t bytes = 0;
    std::uint64_t mark = 0;
  };
  std::array<Own, 24> own{};
  const auto begin = reinterpret_cast<std::uintptr_t>(pager.data());
  const std::uintptr_t end = begin + (chunks + 1) * pager.chunk_bytes();
  while (!stop.load(std::memory_order_relaxed)) {
    Own& one = own[random() % own.size()];
    if (one.at != nullptr) {
      if (volatile_read(one.at) != one.mark) ++seen.foreign_changes;
      ::munmap(one.at, one.bytes);
    }
    const std::uint64_t pick = random();
    one.bytes = pick % 3 == 0 ? pager.chunk_bytes() : (pick / 8 % 80 + 1) * 4096;
    void* const hint = pick % 2 == 0 ? nullptr : pager.data() + pick / 1024 % (chunks + 1) * pager.chunk_bytes();
    void* const at = ::mmap(hint, one.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    one.at = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
    if (one.at == nullptr) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (address < end && address + one.bytes > begin) ++seen.mapped_inside;
    one.mark = random();
    volatile_write(one.at, one.mark);
    ++seen.mappings;
  }
  for (const Own& one : own) {
    if (one.at != nullptr) ::munmap(one.at, one.bytes);
  }
}

void move_chunks(Pager& pager, std::uint64_t seed, const std::atomic<bool>& stop) {
  std::mt19937_64 random(seed);
  const bool can_convert = pager.convert({0}, FrameKind::trackable).ok();
  while (!stop.load(std::memory_order_relaxed)) {
    const auto c = static_cast<std::uint32_t>(random() % chunks);
    const std::uint64_t what = random() % 16;
    if (what == 0) {
      pager.excursion(c);
    } else if (what == 1 && can_convert) {
      constexpr FrameKind kinds[] = {FrameKind::fast, FrameKind::trackable, FrameKind::unregistered};
      const FrameKind kind = kinds[random() % std::size(kinds)];
      ASSERT_TRUE(pager.convert({static_cast<std::uint32_t>(random() % frames)}, kind));
    } else if (what < 11) {
      pager.evict(c);
    } else {
      pager.fetch(c);
    }
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  }
}

void stress(Open open, std::size_t chunk_bytes, std::uint64_t seed) {
  Pager pager(open, chunks, frames, chunk_bytes, seed);
  if (!pager.error().empty()) GTEST_SKIP() << pager.error();
  for (std::uint32_t c = for_calls + 1; c < chunks; ++c) {
    for (std::size_t word = 0; word < chunk_bytes / 8; ++word)
      volatile_write(pager.chunk(c) + word * 8, constant(c, word));
  }
  Seen seen;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < writers; ++w)
    threads.emplace_back([&, w] { write_counters(pager, w, seed, stop, seen); });
  threads.emplace_back([&] { read_constants(pager, seed + 100, stop, seen); });
  threads.emplace_back([&] { map_and_unmap(pager, seed + 200, stop, seen); });
  threads.emplace_back([&] { move_chunks(pager, seed + 300, stop); });
  threads.emplace_back([&] { move_chunks(pager, seed + 400, stop); });
  if (pager.memory().reach().system_calls) threads.emplace_back([&] { call_the_kernel(pager, stop, seen); });
  std::this_thread::sleep_for(std::chrono::duration<double>(stress_seconds()));
  const auto enough = [&] {
    return seen.writes > 100 && seen.reads > 100 && seen.mappings > 100 && pager.faults() > 100;
  };
  // slow machines
  for (int tenths = 0; tenths < 600 && !enough(); ++tenths) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  stop = true;
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(seen.wrong_counts, 0u);
  EXPECT_EQ(seen.wrong_constants, 0u);
  EXPECT_EQ(seen.wrong_calls, 0u);
  EXPECT_EQ(seen.mapped_inside, 0u);
  EXPECT_EQ(seen.foreign_changes, 0u);
  EXPECT_GT(seen.writes, 100u);
  EXPECT_GT(seen.reads, 100u);
  EXPECT_GT(seen.mappings, 100u);
  EXPECT_GT(pager.faults(), 100u);
  ::testing::Test::RecordProperty("faults", std::to_string(pager.faults()));
  ::testing::Test::RecordProperty("writes", std::to_string(seen.writes));
  ::testing::Test::RecordProperty("calls", std::to_string(seen.calls));
  ::testing::Test::RecordProperty("mappings", std::to_string(seen.mappings));
}

constexpr std::size_t small = std::size_t{64} << 10, large = std::size_t{2} << 20;

TEST(GoingAway, IsAtomicUnderUffdioMoveWithSmallChunks) { stress(open_move_memory, small, 1); }
TEST(GoingAway, IsAtomicUnderUffdioMoveWithHugePages) { stress(open_move_memory, large, 2); }
TEST(GoingAway, IsAtomicUnderMremapWithSmallChunks) { stress(open_remap_memory, small, 3); }
TEST(GoingAway, IsAtomicUnderMremapWithHugePages) { stress(open_remap_memory, large, 4); }
TEST(GoingAway, IsAtomicUnderSignalsWithSmallChunks) { stress(open_signal_memory, small, 5); }
TEST(GoingAway, IsAtomicUnderSignalsWithHugePages) { stress(open_signal_memory, large, 6); }
TEST(GoingAway, IsAtomicForFileFramesWithSmallChunks) { stress(open_file_memory, small, 7); }
TEST(GoingAway, IsAtomicForFileFramesWithLargeChunks) { stress(open_file_memory, large, 8); }

}  // namespace
}  // namespace vedette::going_away_test
