// When has a transfer ended? Every answer the kernel can give, without a kernel.
#include "tier/io_queue.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace vedette::io_queue_test {
namespace {

constexpr Bytes slot = 64_KiB;

TEST(Advance, EndsWhenAllBytesHaveMoved) {
  Transfer transfer;
  EXPECT_TRUE(advance(transfer, 65536, slot));
  EXPECT_EQ(transfer.error, 0);
}

TEST(Advance, GoesOnAfterAShortTransferFromWhereItStopped) {
  Transfer transfer;
  EXPECT_FALSE(advance(transfer, 4096, slot));
  EXPECT_EQ(transfer.done, 4096U);
  EXPECT_FALSE(advance(transfer, 12288, slot));
  EXPECT_EQ(transfer.done, 16384U);
  EXPECT_TRUE(advance(transfer, 65536 - 16384, slot));
  EXPECT_EQ(transfer.error, 0);
}

TEST(Advance, GoesOnFromAWholeBlockSoThatDirectIoCanFollow) {
  Transfer transfer;
  EXPECT_FALSE(advance(transfer, 5000, slot));
  EXPECT_EQ(transfer.done, 4096U);
}

TEST(Advance, TellsTheErrnoThatEndedIt) {
  for (const int code : {EIO, ENOSPC, EFAULT, EINVAL}) {
    Transfer transfer;
    EXPECT_FALSE(advance(transfer, 8192, slot));
    EXPECT_TRUE(advance(transfer, -code, slot));
    EXPECT_EQ(transfer.error, code);
  }
}

TEST(Advance, TriesAgainAfterAnInterruption) {
  for (const int code : {EAGAIN, EINTR}) {
    Transfer transfer;
    EXPECT_FALSE(advance(transfer, -code, slot));
    EXPECT_EQ(transfer.done, 0U);
    EXPECT_TRUE(advance(transfer, 65536, slot));
    EXPECT_EQ(transfer.error, 0);
  }
}

TEST(Advance, GivesUpOnEndlessInterruptions) {
  Transfer transfer;
  std::uint32_t tries = 1;
  while (!advance(transfer, -EAGAIN, slot)) ++tries;
  EXPECT_EQ(tries, retries_per_transfer);
  EXPECT_EQ(transfer.error, EAGAIN);
}

TEST(Advance, ForgetsOldInterruptionsOnceBytesMove) {
  Transfer transfer;
  EXPECT_FALSE(advance(transfer, -EAGAIN, slot));
  EXPECT_FALSE(advance(transfer, 4096, slot));
  EXPECT_EQ(transfer.retries, 0U);
}

TEST(Advance, CallsTheEndOfTheFileAnError) {
  Transfer transfer;
  EXPECT_FALSE(advance(transfer, 4096, slot));
  EXPECT_TRUE(advance(transfer, 0, slot));
  EXPECT_EQ(transfer.error, EIO);
}

}  // namespace
}  // namespace vedette::io_queue_test
