// Pages of the arena that a system call of the program has pinned, and signal handlers that touch memory that is away:
// both once made a thread of the engine wait for itself.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>

#include "base/fd.h"
#include "engine/rig.h"

namespace vedette::pinned_test {
namespace {

using namespace testing;

// A file of `bytes` whose 64-bit words count up; invalid where the file system has no O_DIRECT.
Fd counting_file(std::size_t bytes) {
  char path[] = "./pinned_test_XXXXXX";
  Fd file(::mkostemp(path, O_CLOEXEC));
  if (!file) return file;
  std::vector<std::uint64_t> words(bytes / 8);
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = w;
  const bool whole =
      ::write(file.get(), words.data(), bytes) == static_cast<ssize_t>(bytes) && ::fsync(file.get()) == 0;
  Fd direct(whole ? ::open(path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1);
  ::unlink(path);
  return direct;
}

// The kernel pins up to 256 pages for one request to the disk: the first chunks stay pinned while a later one faults.
TEST(Pinned, AReadOfTheProgramPinsTheVictimsOfItsOwnFaults) {
  constexpr std::uint32_t frames = 24, target = 14, others = 30;
  const Fd file = counting_file(target * chunk_bytes.value);
  if (!file) GTEST_SKIP() << "no O_DIRECT on the file system of the working directory";
  Rig rig(frames, target + others);
  for (std::uint32_t c = 0; c < target + others; ++c) rig.born(c, c + 1);
  for (int round = 0; round < 5; ++round) {
    rig.evict({at(0, target)});
    // The others are needed again, what is read into is not: it is always the first to leave.
    rig.op({}, {.fetches = {}, .evictions = {}, .next_uses = {{at(target, others), 1000}}});
    for (std::uint32_t c = target; c < target + others; ++c) ASSERT_TRUE(rig.holds(c, c + 1));
    ASSERT_EQ(::pread(file.get(), rig.words(0), target * chunk_bytes.value, 0),
              static_cast<ssize_t>(target * chunk_bytes.value));
    std::uint64_t wrong = 0;
    for (std::size_t w = 0; w < target * words_per_chunk; ++w) wrong += rig.words(0)[w] == w ? 0 : 1;
    EXPECT_EQ(wrong, 0u);
    for (std::uint32_t c = target; c < target + others; ++c) EXPECT_TRUE(rig.holds(c, c + 1)) << c;
  }
}

// Registered as an io_uring buffer, memory is pinned until it is given back.
class Pin {
 public:
  Pin(void* memory, std::size_t bytes) : works_(::io_uring_queue_init(2, &ring_, 0) == 0) {
    const iovec all{memory, bytes};
    pinned_ = works_ && ::io_uring_register_buffers(&ring_, &all, 1) == 0;
  }
  ~Pin() {
    if (works_) ::io_uring_queue_exit(&ring_);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  bool pinned() const { return pinned_; }
  void end() { ::io_uring_unregister_buffers(&ring_); }

 private:
  io_uring ring_{};
  bool works_ = false, pinned_ = false;
};

bool refuses_pinned_pages(const Rig& rig) { return rig.mechanism().find("UFFDIO_MOVE") != std::string::npos; }

// A frame may come from a dead chunk with a page that stays pinned. A thread that waits for it writes as soon as its
// first page is there, and what it has written stays.
TEST(Pinned, WhatAThreadWritesWhileAFrameIsGivenBackIsNotLost) {
  for (int round = 0; round < 20; ++round) {
    Rig rig(6, 16);
    if (!refuses_pinned_pages(rig)) GTEST_SKIP() << "memory that moves by " << rig.mechanism() << " refuses no pages";
    for (std::uint32_t c = 0; c < 6; ++c) rig.born(c, c + 1);
    std::optional<Pin> pin;
    rig.store().close_gate(Direction::write);
    std::future<void> writer;
    rig.op({at(0, 6)}, {}, [&] {
      pin.emplace(rig.words(0) + words_per_chunk - 512, 4096);  // the last page of a chunk that dies first
      ASSERT_TRUE(rig.engine().born(at(8)).ok());               // all is in use: it is there when somebody touches it
      writer = std::async(std::launch::async, [&] { rig.words(8)[0] = 42; });
      std::this_thread::sleep_for(1ms);
      rig.engine().died(at(0));
      std::this_thread::sleep_for(3ms);
      rig.engine().died(at(1));
    });
    if (!pin->pinned()) GTEST_SKIP() << "io_uring registers no buffers here";
    rig.store().open_gate(Direction::write);
    writer.get();
    ASSERT_EQ(rig.words(8)[0], 42U) << "round " << round;
    pin->end();
  }
}

TEST(Pinned, WhereEveryVictimIsPinnedAFaultWaitsForTheFirstThatIsFree) {
  Rig rig(4, 8);
  if (!refuses_pinned_pages(rig)) GTEST_SKIP() << "memory that moves by " << rig.mechanism() << " refuses no pages";
  for (std::uint32_t c = 0; c < 8; ++c) rig.born(c, c + 1);
  for (std::uint32_t c = 0; c < 4; ++c) ASSERT_TRUE(rig.holds(c, c + 1));
  Pin pin(rig.words(0), 4 * chunk_bytes.value);
  if (!pin.pinned()) GTEST_SKIP() << "io_uring registers no buffers here";
  auto reader = std::async(std::launch::async, [&] { return rig.holds(6, 7); });
  auto birth = std::async(std::launch::async, [&] {
    rig.engine().died(at(7));
    return rig.engine().born(at(7)).ok();
  });
  EXPECT_EQ(reader.wait_for(100ms), std::future_status::timeout);
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c + 1)) << "what is pinned stays where it is";
  EXPECT_GE(rig.engine().counters().faults, 1u);  // which returns: no thread waits while it holds the engine's lock
  pin.end();
  ASSERT_EQ(reader.wait_for(10s), std::future_status::ready);
  EXPECT_TRUE(reader.get());
  EXPECT_TRUE(birth.get());
  for (std::uint32_t c = 0; c < 7; ++c) EXPECT_TRUE(rig.holds(c, c + 1)) << c;
}

TEST(Pinned, ADeadChunkThatIsPinnedGivesItsFrameWhenItIsFree) {
  Rig rig(4, 8);
  if (!refuses_pinned_pages(rig)) GTEST_SKIP() << "memory that moves by " << rig.mechanism() << " refuses no pages";
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c + 1);
  Pin pin(rig.words(0), 2 * chunk_bytes.value);
  if (!pin.pinned()) GTEST_SKIP() << "io_uring registers no buffers here";
  rig.engine().died(at(0, 4));
  rig.engine().born(at(4, 2)).value();  // in the frames of 2 and 3
  EXPECT_EQ(rig.engine().state({0}), ChunkState::idle);
  rig.engine().born(at(0)).value();  // where it was
  pin.end();
  ASSERT_TRUE(eventually([&] { return rig.engine().counters().resident_bytes.value == 3 * chunk_bytes.value; }));
  rig.engine().born(at(6)).value();
  EXPECT_EQ(rig.engine().counters().bytes_out.value, 0u);
  EXPECT_EQ(rig.engine().state({1}), ChunkState::empty);
}

TEST(Pinned, AnEvictionThatThePlanWantsPassesOverWhatIsPinned) {
  Rig rig(4, 8);
  if (!refuses_pinned_pages(rig)) GTEST_SKIP() << "memory that moves by " << rig.mechanism() << " refuses no pages";
  for (std::uint32_t c = 0; c < 4; ++c) rig.born(c, c + 1);
  Pin pin(rig.words(1), chunk_bytes.value);
  if (!pin.pinned()) GTEST_SKIP() << "io_uring registers no buffers here";
  rig.op({}, {.fetches = {}, .evictions = {at(0, 3)}, .next_uses = {}});
  ASSERT_TRUE(eventually(
      [&] { return rig.engine().state({0}) == ChunkState::away && rig.engine().state({2}) == ChunkState::away; }));
  EXPECT_EQ(rig.engine().state({1}), ChunkState::resident);
  for (std::uint32_t c = 0; c < 4; ++c) EXPECT_TRUE(rig.holds(c, c + 1)) << c;
}

// --- signals -----------------------------------------------------------------------------------------------------

std::atomic<const std::uint64_t*> touched_by_handler{nullptr};
std::atomic<std::uint64_t> seen_by_handler{0};

void touch(int) { seen_by_handler = *touched_by_handler.load(); }

// Where every thread of the program blocks a signal, a thread of ours that does not is the only one to run its handler.
TEST(Signals, AHandlerThatTouchesMemoryThatIsAwayNeverRunsOnAThreadOfTheEngine) {
  sigset_t usr1, before;
  ::sigemptyset(&usr1);
  ::sigaddset(&usr1, SIGUSR1);
  struct sigaction handler = {}, old = {};
  handler.sa_handler = touch;
  ::sigaction(SIGUSR1, &handler, &old);
  Rig rig;  // its threads start while the signal is open
  ::pthread_sigmask(SIG_BLOCK, &usr1, &before);
  rig.born(0, 7);
  rig.evict({at(0)});
  touched_by_handler = rig.words(0) + 5;
  ASSERT_EQ(::kill(::getpid(), SIGUSR1), 0);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(seen_by_handler, 0u) << "a thread of the engine has run the handler";
  EXPECT_EQ(rig.engine().state({0}), ChunkState::away) << "a thread of the engine waits for a chunk";
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(seen_by_handler, 7 * 1'000'003u + 5u);
  ::sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace
}  // namespace vedette::pinned_test
