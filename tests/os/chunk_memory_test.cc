// Every ChunkMemory keeps the promises of chunk_memory.h: the same cases over all four mechanisms and two chunk sizes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>

#include "base/fd.h"
#include "os/page_tracker.h"
#include "os/parking.h"
#include "os/test_pager.h"
#include "support/child.h"
#include "support/sanitized.h"

namespace vedette::chunk_memory_test {
namespace {

using testing::Open;
using testing::Pager;

constexpr std::size_t small = std::size_t{64} << 10, large = std::size_t{2} << 20;

struct Case {
  const char* name;
  Open open;
  std::size_t chunk_bytes;
  std::uint32_t rounds;  // of the cases that hammer
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ChunkMemoryTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Pager> make(std::uint32_t chunks, std::uint32_t frames) {
    auto pager = std::make_unique<Pager>(GetParam().open, chunks, frames, GetParam().chunk_bytes, 7);
    skip_reason_ = pager->error();
    return pager;
  }
  std::string skip_reason_;
};

#define MAKE_OR_SKIP(name, chunks, frames)                 \
  auto owner_of_##name = make(chunks, frames);             \
  if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_; \
  Pager& name = *owner_of_##name

std::uint64_t volatile_read(const std::byte* p) { return *reinterpret_cast<const volatile std::uint64_t*>(p); }
void volatile_write(std::byte* p, std::uint64_t v) { *reinterpret_cast<volatile std::uint64_t*>(p) = v; }

// What word i of chunk c holds in version v.
std::uint64_t pattern(std::uint64_t c, std::uint64_t i, std::uint64_t v) {
  return (c + 1) * 0x9E3779B97F4A7C15u ^ (i + 1) * 0xC2B2AE3D27D4EB4Fu ^ v;
}

void fill(Pager& pager, std::uint32_t c, std::uint64_t version) {
  auto* words = reinterpret_cast<std::uint64_t*>(pager.chunk(c));
  for (std::size_t i = 0; i < pager.chunk_bytes() / 8; ++i) words[i] = pattern(c, i, version);
}

std::size_t wrong_words(Pager& pager, std::uint32_t c, std::uint64_t version) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(pager.chunk(c));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < pager.chunk_bytes() / 8; ++i) wrong += words[i] != pattern(c, i, version) ? 1 : 0;
  return wrong;
}

// A part of memory that wants huge pages is lent. The kernel makes a huge page of what is left, as khugepaged does in
// the background. The hole must not be filled before the pages are back.
TEST_P(ChunkMemoryTest, LentMemoryComesBackAlsoWhereTheKernelMakesHugePages) {
  MAKE_OR_SKIP(pager, 2, 1);
  if (!pager.memory().reach().lends) GTEST_SKIP() << "this memory lends nothing";
  constexpr std::size_t huge = std::size_t{2} << 20;
  constexpr int collapse = 25;  // MADV_COLLAPSE, Linux 6.1
  const std::size_t bytes = std::max(huge, 2 * pager.chunk_bytes());
  auto lender = Mapping::reserve({bytes}, {huge}).value();
  ::madvise(lender.data(), bytes, MADV_HUGEPAGE);
  std::memset(lender.data(), 3, bytes);
  std::byte* const lent = lender.data() + pager.chunk_bytes();
  ASSERT_TRUE(pager.memory().lend(lent, {1}));
  EXPECT_EQ(pager.chunk(1)[pager.chunk_bytes() - 1], std::byte{3});
  std::memset(pager.chunk(1), 4, pager.chunk_bytes());
  ::madvise(lender.data(), bytes, collapse);  // may be refused: then nothing was filled
  ASSERT_TRUE(pager.memory().take_back({1}, lent));
  for (std::size_t i = 0; i < bytes; i += 4096) {
    const std::byte* const at = lender.data() + i;
    EXPECT_EQ(*at, at >= lent && at < lent + pager.chunk_bytes() ? std::byte{4} : std::byte{3}) << i;
  }
}

// Each loan takes mappings, of which the kernel allows few: one too many is refused, and the program goes on.
TEST_P(ChunkMemoryTest, LendsNoMoreThanThereAreMappingsFor) {
  if (GetParam().chunk_bytes != small) GTEST_SKIP() << "as with small chunks";
  constexpr std::size_t chunk = 16 << 10, chunks = 40'000;
  auto arena = Mapping::reserve({chunks * chunk}, {std::size_t{2} << 20}).value();
  auto lender = Mapping::reserve({chunks * chunk}, {std::size_t{2} << 20}).value();
  auto opened = GetParam().open(
      {.arena = arena.data(), .chunks = chunks, .frames = 2, .chunk_bytes = {chunk}, .on_fault = [](const Fault&) {
         die("no thread touches what is away");
       }});
  if (!opened) GTEST_SKIP() << opened.error().message;
  ChunkMemory& memory = **opened;
  if (!memory.reach().lends) GTEST_SKIP() << "this memory lends nothing";
  std::uint32_t lent = 0;
  for (; lent < chunks; lent += 2) {  // every second one, so that no mapping joins its neighbour
    std::memset(lender.data() + lent * chunk, 5, chunk);
    if (!memory.lend(lender.data() + lent * chunk, {lent})) break;
    arena.data()[lent * chunk] = std::byte{6};
  }
  EXPECT_LT(lent, chunks) << "nothing was refused";
  EXPECT_GT(lent, 2'000U);
  for (std::uint32_t c = 0; c < lent; c += 2) {
    ASSERT_TRUE(memory.take_back({c}, lender.data() + c * chunk));
    ASSERT_EQ(lender.data()[c * chunk], std::byte{6}) << c;
  }
  ASSERT_TRUE(memory.lend(lender.data() + lent * chunk, {lent})) << "what is back is counted still";
  ASSERT_TRUE(memory.take_back({lent}, lender.data() + lent * chunk));
}

// Of private memory; a file's page keeps its bytes.
TEST_P(ChunkMemoryTest, APageThatTheProgramDiscardsHoldsZerosHereAndAfterItMoves) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer dislikes forks of programs with threads";
  make(2, 2);
  if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_;
  const auto status = testing::in_child([this] {
    ::alarm(20);
    const auto pager = make(2, 2);
    pager->restores = true;
    const auto right = [&](std::size_t discarded) {
      const auto* const words = reinterpret_cast<const std::uint64_t*>(pager->chunk(0));
      const bool zeros = GetParam().open != open_file_memory;
      for (std::size_t i = 0; i < pager->chunk_bytes() / 8; ++i)
        if (words[i] != (zeros && i / 512 == discarded ? 0 : pattern(0, i, 1))) return false;
      return true;
    };
    fill(*pager, 0, 1);
    ::madvise(pager->chunk(0) + 3 * 4096, 4096, MADV_DONTNEED);
    if (!right(3)) ::_exit(1);
    fill(*pager, 0, 1);
    ::madvise(pager->chunk(0) + 5 * 4096, 4096, MADV_DONTNEED);
    pager->evict(0);
    if (!right(5)) ::_exit(2);
  });
  EXPECT_TRUE(testing::exited_well(status)) << status.value_or(-1);
}

TEST_P(ChunkMemoryTest, BytesSurviveRandomMoves) {
  MAKE_OR_SKIP(pager, 12, 5);
  std::mt19937_64 random(1);
  std::array<std::uint64_t, 12> version{};
  for (std::uint32_t c = 0; c < 12; ++c) fill(pager, c, 0);
  for (int round = 0; round < 150; ++round) {
    const auto c = static_cast<std::uint32_t>(random() % 12);
    switch (random() % 4) {
      case 0:
        pager.evict(c);
        break;
      case 1:
        pager.fetch(c);
        break;
      case 2:
        ASSERT_TRUE(pager.excursion(c));
        break;
      default:
        fill(pager, c, ++version[c]);
    }
  }
  for (std::uint32_t c = 0; c < 12; ++c) EXPECT_EQ(wrong_words(pager, c, version[c]), 0u) << "chunk " << c;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages >> pages;
  return pages * 4096;
}

TEST_P(ChunkMemoryTest, FramesAreMadeLaterAndGiveTheirMemoryBack) {
  constexpr std::uint32_t frames = 8, made = 2;
  const std::size_t bytes = GetParam().chunk_bytes;
  auto arena = Mapping::reserve({frames * bytes}, {huge_page_bytes});
  ASSERT_TRUE(arena);
  auto opened = GetParam().open({.arena = arena->data(),
                                 .chunks = frames,
                                 .frames = frames,
                                 .made = made,
                                 .budget = 4,  // frames beyond it get memory as others do
                                 .chunk_bytes = {bytes},
                                 .on_fault = [](const Fault&) {}});
  if (!opened) GTEST_SKIP() << opened.error().message;
  ChunkMemory& memory = **opened;
  EXPECT_EQ(memory.made(), made);
  const std::uint64_t first = resident_bytes();
  for (const FrameKind kind : {FrameKind::fast, FrameKind::trackable, FrameKind::unregistered, FrameKind::fast}) {
    if (!memory.trackable()->convert({0}, std::nullopt, kind, false)) continue;
    ASSERT_EQ(memory.make({made}, 1, kind), 0);
    ASSERT_EQ(memory.make({made + 1}, frames - made - 1, kind), 0);
    for (std::uint32_t f = made; f < frames; ++f) {
      std::memset(memory.parked({f}), static_cast<int>(f), bytes);
      memory.show({f}, {frames - 1 - f});
      EXPECT_EQ(std::to_integer<std::uint32_t>(arena->data()[(frames - f) * bytes - 1]), f);
      ASSERT_TRUE(memory.hide({frames - 1 - f}, {f}));
    }
    for (std::uint32_t f = made; f < frames; ++f) memory.give_back({f});
    if (testing::sanitized) continue;  // what a sanitizer notes of each byte is resident, too
    EXPECT_LT(resident_bytes(), first + 2 * bytes + (std::size_t{1} << 20)) << "kind " << static_cast<int>(kind);
  }
}

TEST_P(ChunkMemoryTest, TellsWhereAFaultIsAndWhetherItWrites) {
  MAKE_OR_SKIP(pager, 4, 4);
  const std::uint64_t last = pager.chunk_bytes() / 4096 - 1;
  std::thread([&] { volatile_read(pager.chunk(2) + last * 4096 + 8); }).join();
  std::thread([&] { volatile_write(pager.chunk(1) + 3 * 4096, 5); }).join();
  const auto told = pager.faults_told();
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told.front().chunk, ChunkIndex{2});
  EXPECT_EQ(told.front().page, last);
  EXPECT_FALSE(told.front().write);
  EXPECT_EQ(told.back().chunk, ChunkIndex{1});
  EXPECT_EQ(told.back().page, 3u);
  EXPECT_TRUE(told.back().write);
  EXPECT_EQ(volatile_read(pager.chunk(1) + 3 * 4096), 5u);
}

TEST_P(ChunkMemoryTest, ManyThreadsWaitForOneChunkAndAllGoOn) {
  MAKE_OR_SKIP(pager, 4, 2);
  fill(pager, 3, 9);
  for (std::uint32_t round = 0; round < 20; ++round) {
    pager.evict(3);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        const std::size_t i = t * pager.chunk_bytes() / 8 / 6;
        if (volatile_read(pager.chunk(3) + i * 8) == pattern(3, i, 9)) ++right;
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(right, 6);
  }
}

// A fault that was told too late is answered by waking its threads, though the chunk is away: they tell it once more.
TEST_P(ChunkMemoryTest, WhoWaitsTellsItsFaultAgainWhenWoken) {
  const std::size_t bytes = GetParam().chunk_bytes;
  Mapping arena = Mapping::reserve({2 * bytes}, {std::size_t{2} << 20}).value();
  std::atomic<int> told{0};
  auto opened = GetParam().open(
      {.arena = arena.data(), .chunks = 2, .frames = 2, .chunk_bytes = {bytes}, .on_fault = [&](const Fault&) {
         ++told;
       }});
  if (!opened) GTEST_SKIP() << opened.error().message;
  ChunkMemory& memory = **opened;
  const auto soon = [&](int faults) {
    for (int i = 0; i < 5'000 && told < faults; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return told >= faults;
  };
  std::vector<std::thread> threads;
  const auto ask = [&](std::size_t page) {
    threads.emplace_back([&arena, page] { volatile_read(arena.data() + page * 4096); });
  };
  ask(0);
  ask(1);
  EXPECT_TRUE(soon(2));
  memory.faults()->wake({0});
  EXPECT_TRUE(soon(4)) << told << " faults";
  ask(2);
  EXPECT_TRUE(soon(5));
  memory.faults()->wake({0});
  EXPECT_TRUE(soon(8)) << told << " faults: the second time, too";
  memory.show({0}, {0});
  for (std::thread& thread : threads) thread.join();
}

// The sink wakes at once, so that some wakes fall between a thread's telling and its sleep.
TEST_P(ChunkMemoryTest, NoWakeOfAChunkThatStaysAwayIsLost) {
  constexpr int times = 3'000;
  const std::size_t bytes = GetParam().chunk_bytes;
  Mapping arena = Mapping::reserve({2 * bytes}, {std::size_t{2} << 20}).value();
  std::atomic<ChunkMemory*> opened_as{nullptr};
  std::atomic<int> told{0};
  auto opened = GetParam().open(
      {.arena = arena.data(), .chunks = 2, .frames = 2, .chunk_bytes = {bytes}, .on_fault = [&](const Fault&) {
         if (++told <= times) opened_as.load()->faults()->wake({0});
       }});
  if (!opened) GTEST_SKIP() << opened.error().message;
  ChunkMemory& memory = **opened;
  opened_as = &memory;
  std::thread asker([&] { volatile_read(arena.data()); });
  for (int i = 0; i < 5'000 && told <= times; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(told, times);
  memory.show({0}, {0});
  asker.join();
}

TEST_P(ChunkMemoryTest, ServesSystemCallsOrSaysThatItDoesNot) {
  MAKE_OR_SKIP(pager, 4, 3);
  const std::size_t bytes = pager.chunk_bytes();
  Fd file{::memfd_create("system-calls", MFD_CLOEXEC)};
  fill(pager, 0, 1);
  fill(pager, 1, 1);
  pager.evict(0);
  pager.evict(1);
  const ssize_t written = ::pwrite(file.get(), pager.data(), 2 * bytes, 0);  // across two away chunks
  if (!pager.memory().reach().system_calls) {
    EXPECT_LT(written, static_cast<ssize_t>(2 * bytes));
    return;
  }
  ASSERT_EQ(written, static_cast<ssize_t>(2 * bytes));
  fill(pager, 0, 2);
  fill(pager, 1, 2);
  pager.evict(0);
  pager.evict(1);
  ASSERT_EQ(::pread(file.get(), pager.data(), 2 * bytes, 0), static_cast<ssize_t>(2 * bytes));
  EXPECT_EQ(wrong_words(pager, 0, 1) + wrong_words(pager, 1, 1), 0u);
}

// Each writer owns one counter a page; the pager takes chunks away under its hands. A lost store, a stale copy, a zero
// or a poisoned byte all break the count.
TEST_P(ChunkMemoryTest, GoingAwayIsAtomic) {
  MAKE_OR_SKIP(pager, 6, 4);
  constexpr std::size_t writers = 3, pages = 8;
  const std::size_t stride = pager.chunk_bytes() / pages;
  const bool can_convert = pager.convert({0}, FrameKind::trackable).ok() && pager.convert({0}, FrameKind::fast).ok();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0}, increments{0};
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      std::mt19937_64 random(w);
      std::array<std::uint64_t, 6 * pages> count{};
      while (!stop.load(std::memory_order_relaxed)) {
        const std::size_t at = random() % count.size();
        std::byte* const slot = pager.chunk(static_cast<std::uint32_t>(at / pages)) + at % pages * stride + w * 8;
        for (int i = 0; i < 20; ++i) {
          if (volatile_read(slot) != count[at]) ++wrong;
          volatile_write(slot, ++count[at]);
        }
        increments += 20;
      }
    });
  }
  std::mt19937_64 random(99);
  for (std::uint32_t round = 0; round < GetParam().rounds; ++round) {
    const auto c = static_cast<std::uint32_t>(random() % 6);
    if (random() % 8 == 0) {
      pager.excursion(c);
    } else if (can_convert && random() % 8 == 0) {
      constexpr FrameKind kinds[] = {FrameKind::fast, FrameKind::trackable, FrameKind::unregistered};
      const FrameKind kind = kinds[random() % std::size(kinds)];
      ASSERT_TRUE(pager.convert({static_cast<std::uint32_t>(random() % 4)}, kind));
    } else {
      pager.evict(c);
      if (random() % 2 == 0) pager.fetch(c);
    }
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(increments, 0u);
  EXPECT_GT(pager.faults(), 0u);
}

TEST_P(ChunkMemoryTest, OtherMappingsNeverLandInTheArena) {
  MAKE_OR_SKIP(pager, 6, 4);
  for (std::uint32_t c = 0; c < 6; ++c) fill(pager, c, 3);
  std::atomic<bool> stop{false};
  std::atomic<int> inside{0}, mapped{0};
  const auto begin = reinterpret_cast<std::uintptr_t>(pager.data());
  std::thread mapper([&] {
    std::mt19937_64 random(5);
    while (!stop) {
      const std::size_t bytes = (random() % 64 + 1) * 4096;
      void* const hint = random() % 2 == 0 ? nullptr : pager.data() + random() % 6 * pager.chunk_bytes();
      void* const at = ::mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      const auto address = reinterpret_cast<std::uintptr_t>(at);
      if (address + bytes > begin && address < begin + 7 * pager.chunk_bytes()) ++inside;
      *static_cast<volatile char*>(at) = 1;
      ++mapped;
      ::munmap(at, bytes);
    }
  });
  std::mt19937_64 random(6);
  for (std::uint32_t round = 0; round < GetParam().rounds; ++round) {
    const auto c = static_cast<std::uint32_t>(random() % 6);
    pager.evict(c);
    pager.fetch(c);
  }
  stop = true;
  mapper.join();
  EXPECT_EQ(inside, 0);
  EXPECT_GT(mapped, 0);
  for (std::uint32_t c = 0; c < 6; ++c) EXPECT_EQ(wrong_words(pager, c, 3), 0u);
}

// Of this process, a page that is mapped twice counted once. Without pages of files: of those that other processes map
// too it has more when one of them ends.
std::uint64_t proportional_kib() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;  // shadow memory grows with every page that is touched: the limits say nothing here
#endif
  std::ifstream file("/proc/self/smaps_rollup");
  std::string line;
  unsigned long long all = 0, kib = 0;
  while (std::getline(file, line)) {
    if (std::sscanf(line.c_str(), "Pss_Anon: %llu kB", &kib) == 1 ||
        std::sscanf(line.c_str(), "Pss_Shmem: %llu kB", &kib) == 1)
      all += kib;
  }
  return all;
}

TEST_P(ChunkMemoryTest, FramesChangeKindInPlaceAndExistOnce) {
  MAKE_OR_SKIP(pager, 20, 16);
  for (std::uint32_t c = 0; c < 20; ++c) fill(pager, c, 4);
  const std::uint64_t before = proportional_kib(), chunk_kib = pager.chunk_bytes() / 1024;
  for (const FrameKind kind :
       {FrameKind::trackable, FrameKind::fast, FrameKind::trackable, FrameKind::unregistered, FrameKind::fast}) {
    for (std::uint32_t f = 0; f < 16; ++f) {
      if (auto converted = pager.convert({f}, kind); !converted) GTEST_SKIP() << converted.error().message;
      EXPECT_LE(proportional_kib(), before + 2 * chunk_kib + 512) << "frame " << f;
    }
    for (std::uint32_t c = 0; c < 20; ++c) EXPECT_EQ(wrong_words(pager, c, 4), 0u) << "chunk " << c;
  }
}

TEST_P(ChunkMemoryTest, FramesWithoutBytesChangeKindAndAreWhole) {
  MAKE_OR_SKIP(pager, 4, 4);
  for (std::uint32_t c = 0; c < 4; ++c) fill(pager, c, 4);
  const std::uint64_t before = proportional_kib();
  for (std::uint32_t c = 0; c < 4; ++c) pager.evict(c);
  for (const FrameKind kind :
       {FrameKind::trackable, FrameKind::fast, FrameKind::trackable, FrameKind::unregistered, FrameKind::fast}) {
    for (std::uint32_t f = 0; f < 4; ++f) {
      if (auto converted = pager.convert_empty({f}, kind); !converted) GTEST_SKIP() << converted.error().message;
    }
    for (std::uint32_t c = 0; c < 4; ++c) fill(pager, c, 4);
    for (std::uint32_t c = 0; c < 4; ++c) EXPECT_EQ(wrong_words(pager, c, 4), 0u) << "chunk " << c;
    EXPECT_LE(proportional_kib(), before + 2 * pager.chunk_bytes() / 1024 + 512);
    for (std::uint32_t c = 0; c < 4; ++c) pager.evict(c);
  }
}

TEST_P(ChunkMemoryTest, PagesThatExpectWritesTakeOneFaultAndAreToldAsWritten) {
  MAKE_OR_SKIP(pager, 4, 3);
  auto tracker = open_zap_tracker();
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  fill(pager, 1, 0);
  if (auto converted = pager.convert(*pager.frame_of(1), FrameKind::trackable); !converted) {
    GTEST_SKIP() << converted.error().message;
  }
  const AddressRange range{pager.chunk(1), pager.chunk_bytes()};
  ASSERT_TRUE((*tracker)->arm({&range, 1}));
  const auto faults_of_writing = [&] {
    rusage before{}, after{};
    ::getrusage(RUSAGE_THREAD, &before);
    for (std::size_t page = 0; page < 8; ++page) volatile_write(pager.chunk(1) + page * 4096, 1);
    ::getrusage(RUSAGE_THREAD, &after);
    std::vector<TouchedRange> touched;
    EXPECT_TRUE((*tracker)->collect({&range, 1}, touched));
    EXPECT_EQ(touched.size(), 1u);
    if (!touched.empty()) {
      EXPECT_EQ(touched[0].pages, (AddressRange{pager.chunk(1), 8 * 4096}));
      EXPECT_TRUE(touched[0].written);
    }
    return after.ru_minflt - before.ru_minflt;
  };
  faults_of_writing();  // pays for what is first touched beside the pages, as a sanitizer's shadow of them
  const long unexpected = faults_of_writing();
  pager.expect_writes(1, 8);
  const long expected = faults_of_writing();
  EXPECT_GE(expected, 8);
  EXPECT_LT(expected, unexpected);
  EXPECT_GE(faults_of_writing(), unexpected);  // armed again
}

TEST_P(ChunkMemoryTest, TrackableFramesShowTheirPagesToTheZapTracker) {
  MAKE_OR_SKIP(pager, 4, 3);
  auto tracker = open_zap_tracker();
  if (!tracker) GTEST_SKIP() << tracker.error().message;
  fill(pager, 1, 0);
  if (auto converted = pager.convert(*pager.frame_of(1), FrameKind::trackable); !converted) {
    GTEST_SKIP() << converted.error().message;
  }
  const AddressRange range{pager.chunk(1), pager.chunk_bytes()};
  ASSERT_TRUE((*tracker)->arm({&range, 1}));
  volatile_read(pager.chunk(1) + 2 * 4096);
  volatile_write(pager.chunk(1) + 5 * 4096, 1);
  std::vector<TouchedRange> touched;
  ASSERT_TRUE((*tracker)->collect({&range, 1}, touched));
  ASSERT_EQ(touched.size(), 2u);
  EXPECT_EQ(touched[0].pages, (AddressRange{pager.chunk(1) + 2 * 4096, 4096}));
  EXPECT_FALSE(touched[0].written);
  EXPECT_EQ(touched[1].pages, (AddressRange{pager.chunk(1) + 5 * 4096, 4096}));
  EXPECT_TRUE(touched[1].written);
}

int exit_of_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

volatile std::uintptr_t expected_address = 0;

TEST_P(ChunkMemoryTest, AFaultOfTheProgramStillKillsIt) {
  make(2, 2).reset();
  if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_;
  const int status = exit_of_child([&] {
    auto pager = make(2, 2);
    std::thread([&] { volatile_write(pager->chunk(1), 1); }).join();
    volatile_write(reinterpret_cast<std::byte*>(expected_address + 64), 1);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
}

TEST_P(ChunkMemoryTest, AFaultOfTheProgramReachesItsOwnHandlerWithItsAddress) {
  make(2, 2).reset();
  if (!skip_reason_.empty()) GTEST_SKIP() << skip_reason_;
  const int status = exit_of_child([&] {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      ::_exit(reinterpret_cast<std::uintptr_t>(info->si_addr) == expected_address + 64 ? 42 : 43);
    };
    ::sigaction(SIGSEGV, &action, nullptr);
    auto pager = make(2, 2);
    std::thread([&] { volatile_write(pager->chunk(1), 1); }).join();
    volatile_write(reinterpret_cast<std::byte*>(expected_address + 64), 1);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
}

// Locks of the program: on all memory to come before anything is opened, and on chunks that are there or away.
TEST_P(ChunkMemoryTest, LocksOfTheProgramEndWhereTheyMust) {
  const auto status = testing::in_child([&] {
    if (::mlockall(MCL_FUTURE) != 0) ::_exit(77);
    Pager pager(GetParam().open, 6, 3, GetParam().chunk_bytes, 3);
    if (!pager.error().empty()) ::_exit(78);
    for (std::uint32_t c = 0; c < 6; ++c) fill(pager, c, 1);
    for (int round = 0; round < 4; ++round) {
      for (std::uint32_t c = 0; c < 6; c += 2) ::mlock(pager.chunk(c), pager.chunk_bytes());
      for (std::uint32_t c = 0; c < 6; ++c) {
        pager.evict(c);
        pager.fetch((c + 3) % 6);
        if (!pager.excursion((c + 3) % 6)) ::_exit(1);
      }
    }
    for (std::uint32_t c = 0; c < 6; ++c)
      if (wrong_words(pager, c, 1) != 0) ::_exit(2);
  });
  if (testing::exited_with(status, 77)) GTEST_SKIP() << "mlockall is not allowed here";
  if (testing::exited_with(status, 78)) GTEST_SKIP() << "this memory does not work here";
  EXPECT_TRUE(testing::exited_well(status)) << status.value_or(-1);
}

TEST_P(ChunkMemoryTest, AForkedChildThatTouchesTheArenaDiesInsteadOfReadingZeros) {
  MAKE_OR_SKIP(pager, 3, 2);
  fill(pager, 0, 1);
  pager.evict(1);
  for (const std::uint32_t c : {0u, 1u}) {  // shown, away
    const int status = exit_of_child([&] { volatile_read(pager.chunk(c)); });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << "chunk " << c << ": " << status;
  }
  EXPECT_EQ(wrong_words(pager, 0, 1), 0u);
}

// Made without fork handlers: _Fork() and clone(2).
TEST_P(ChunkMemoryTest, AChildOfCloneThatTouchesTheArenaDiesInsteadOfWaitingForEver) {
  MAKE_OR_SKIP(pager, 3, 2);
  fill(pager, 0, 1);
  pager.evict(1);
  for (const std::uint32_t c : {0u, 1u}) {  // shown, away
    const pid_t child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
      testing::leave_no_core();
      ::alarm(10);
      volatile_read(pager.chunk(c));
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << "chunk " << c << ": " << status;
  }
  EXPECT_EQ(wrong_words(pager, 0, 1), 0u);
}

// It shares the memory and the threads that serve it.
TEST_P(ChunkMemoryTest, AChildOfVforkReadsTheArenaAsItsParentDoes) {
  if (testing::sanitized) GTEST_SKIP() << "a sanitizer makes another child of vfork()";
  MAKE_OR_SKIP(pager, 3, 2);
  fill(pager, 0, 1);
  pager.evict(0);
  const std::byte* const away = pager.chunk(0);
  const std::uint64_t expected = pattern(0, 0, 1);
  const pid_t child = ::vfork();
  if (child == 0) {
    ::alarm(10);
    ::_exit(volatile_read(away) == expected ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

struct Toucher {
  Pager* pager;
  int type;                     // of cancellation
  std::atomic<bool> met{true};  // the pattern, at every touch
  std::atomic<bool> asked_itself{false};
};

// Touches chunks without end, most of them away.
void* touch_all(void* with) {
  Toucher& self = *static_cast<Toucher*>(with);
  ::pthread_setcanceltype(self.type, nullptr);
  for (std::uint32_t c = 0;; c = (c + 1) % self.pager->chunks()) {
    if (self.asked_itself) ::pthread_cancel(::pthread_self());  // so it is cancelled before the fault
    if (volatile_read(self.pager->chunk(c)) != pattern(c, 0, 1)) self.met = false;
    ::pthread_testcancel();
  }
}

TEST_P(ChunkMemoryTest, ACancelledThreadEndsAfterItsFaultAndMemoryGoesOn) {
  MAKE_OR_SKIP(pager, 12, 3);
  for (std::uint32_t c = 0; c < 12; ++c) fill(pager, c, 1);
  for (int round = 0; round < 60; ++round) {
    // under a sanitizer a thread that ends inside its calls takes their locks with it
    const bool anywhere = !testing::sanitized && round % 2 == 1;
    Toucher toucher{.pager = &pager, .type = anywhere ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED};
    toucher.asked_itself = round % 4 == 0;
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(&thread, nullptr, touch_all, &toucher), 0);
    std::this_thread::sleep_for(std::chrono::microseconds(100 + 137 * round));
    ::pthread_cancel(thread);
    void* ended = nullptr;
    ::pthread_join(thread, &ended);
    ASSERT_EQ(ended, PTHREAD_CANCELED);
    ASSERT_TRUE(toucher.met);
  }
  for (std::uint32_t c = 0; c < 12; ++c) EXPECT_EQ(wrong_words(pager, c, 1), 0u) << c;
}

INSTANTIATE_TEST_SUITE_P(All, ChunkMemoryTest,
                         ::testing::Values(Case{"move_64K", open_move_memory, small, 3000},
                                           Case{"move_2M", open_move_memory, large, 400},
                                           Case{"remap_64K", open_remap_memory, small, 3000},
                                           Case{"remap_2M", open_remap_memory, large, 400},
                                           Case{"signal_64K", open_signal_memory, small, 3000},
                                           Case{"signal_2M", open_signal_memory, large, 400},
                                           Case{"file_64K", open_file_memory, small, 3000},
                                           Case{"file_2M", open_file_memory, large, 400}),
                         [](const auto& tested) { return tested.param.name; });

TEST(BestMemoryTest, WorksOnThisMachineAndSaysHow) {
  Pager pager(open_best_memory, 4, 2, small, 1);
  ASSERT_EQ(pager.error(), "");
  fill(pager, 0, 1);
  pager.evict(0);
  EXPECT_EQ(wrong_words(pager, 0, 1), 0u);
  RecordProperty("mechanism", std::string(pager.memory().mechanism()));
}

TEST(BestMemoryTest, RefusesABudgetThatTheMachineDoesNotHave) {
  auto arena = Mapping::reserve({large}, {large});
  ASSERT_TRUE(arena);
  const auto opened = open_best_memory(
      {.arena = arena->data(), .chunks = 1, .frames = 1u << 24, .chunk_bytes = {large}, .on_fault = [](const Fault&) {
       }});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().cause, Cause::out_of_memory);
  EXPECT_NE(opened.error().message.find("smaller budget"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace vedette::chunk_memory_test
