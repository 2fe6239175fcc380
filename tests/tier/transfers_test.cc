// Transfers of both queues end whole: bytes lie where their slot is, beyond 4 GiB too, and a transfer that the kernel
// cuts goes on where it stopped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/fd.h"
#include "base/mapping.h"
#include "support/broken_calls.h"
#include "tier/io_queue.h"

namespace vedette::transfers_test {
namespace {

using Direction = StoreRequest::Direction;
constexpr Bytes slot = 64_KiB;

struct Kind {
  const char* name;
  Result<std::unique_ptr<IoQueue>> (*open)(const IoQueueOptions&);
};

class Transfers : public ::testing::TestWithParam<Kind> {
 protected:
  // A file without blocks: only what is written takes room.
  void open(std::uint64_t bytes) {
    std::string path = ::testing::TempDir() + "/vedette-transfers-XXXXXX";
    file_ = Fd(::mkstemp(path.data()));
    ASSERT_TRUE(file_);
    ::unlink(path.c_str());
    ASSERT_EQ(::ftruncate(file_.get(), static_cast<off_t>(bytes)), 0);
    auto queue = GetParam().open({.file = file_.get(), .slot_bytes = slot, .depth = 4, .register_buffers = false});
    if (!queue) GTEST_SKIP() << queue.error().message;
    queue_ = std::move(*queue);
    memory_ = Mapping::reserve(slot, {4096}).value();
  }
  void TearDown() override { testing::arm(std::nullopt); }

  void fill(std::uint64_t mark) {
    for (std::uint64_t i = 0; i < slot.value / 8; ++i) words()[i] = mark + i;
  }
  bool holds(std::uint64_t mark) {
    for (std::uint64_t i = 0; i < slot.value / 8; ++i)
      if (words()[i] != mark + i) return false;
    return true;
  }
  int transfer(Direction direction, std::uint32_t index) {
    const StoreRequest request{.direction = direction, .slot = {index}, .memory = memory_.data(), .token = 1};
    queue_->submit({&request, 1});
    StoreCompletion done;
    while (queue_->wait({&done, 1}, {20'000'000'000}) == 0) {
    }
    return done.error;
  }

  Fd file_;
  std::unique_ptr<IoQueue> queue_;
  Mapping memory_;

 private:
  std::uint64_t* words() { return reinterpret_cast<std::uint64_t*>(memory_.data()); }
};

TEST_P(Transfers, SlotsBeyond4GiBAreNotTheFirstOnes) {
  constexpr std::uint32_t seam = static_cast<std::uint32_t>((4_GiB).value / slot.value);
  open((5_GiB).value);
  if (queue_ == nullptr) return;
  const std::uint32_t slots[] = {0, 1, seam - 1, seam, seam + 1};
  for (const std::uint32_t s : slots) {
    fill(s * 1'000'003ull);
    ASSERT_EQ(transfer(Direction::write, s), 0);
  }
  for (const std::uint32_t s : slots) {
    fill(~std::uint64_t{0});
    ASSERT_EQ(transfer(Direction::read, s), 0);
    EXPECT_TRUE(holds(s * 1'000'003ull)) << "slot " << s;
  }
}

// Half of what each call asks for is moved, at the first call of a transfer, the second, ...
TEST_P(Transfers, ATransferThatIsCutGoesOnWhereItStopped) {
  open(8 * slot.value);
  if (queue_ == nullptr) return;
  for (const Direction direction : {Direction::write, Direction::read}) {
    std::uint32_t cut = 0;
    for (std::uint64_t nth = 0; nth < 12; ++nth) {
      SCOPED_TRACE("call " + std::to_string(nth) + (direction == Direction::write ? " of a write" : " of a read"));
      std::atomic<const char*> broken{nullptr};
      const auto go = [&](Direction which) {
        if (which != direction) return transfer(which, 3);
        testing::tell_broken(&broken);
        testing::arm(testing::BreakAt{.nth = nth, .how = testing::Break::brief});
        const int error = transfer(which, 3);
        testing::arm(std::nullopt);
        testing::tell_broken(nullptr);
        return error;
      };
      fill(nth * 7'919);
      ASSERT_EQ(go(Direction::write), 0);
      fill(~std::uint64_t{0});
      ASSERT_EQ(go(Direction::read), 0);
      EXPECT_TRUE(holds(nth * 7'919));
      cut += broken.load() != nullptr ? 1 : 0;
    }
    EXPECT_GT(cut, 0u) << "no transfer was cut";
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Transfers,
                         ::testing::Values(Kind{"Uring", open_uring_queue}, Kind{"Threads", open_thread_queue}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace vedette::transfers_test
