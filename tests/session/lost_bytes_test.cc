// Others meddle with the slow tier's file: they cut it, or write into it. Who needs the bytes ends with last words that
// name the address, the tensor and the cause; who does not need them goes on. Each case in a process of its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "session/loop.h"
#include "support/store_file.h"

namespace vedette::lost_bytes_test {
namespace {

using testing::Block;

struct Program {
  explicit Program(bool checksums)
      : session(Session::open({.fast_memory = 1_MiB,
                               .slow = "nvme:.",
                               .policy = "on-demand",
                               .chunk = 64_KiB,
                               .checksums = checksums})
                    .value()) {
    for (std::uint64_t b = 0; b < 64; ++b) {
      blocks.emplace_back(*session, 60'000);
      session->label(blocks.back().address(), "block " + std::to_string(b), TensorKind::weight);
      blocks.back().fill(b);
    }
  }
  void read_all() const {
    for (std::uint64_t b = 0; b < 64; ++b)
      if (!blocks[b].holds(b)) ::_exit(3);  // a wrong number
  }
  std::unique_ptr<Session> session;
  std::vector<Block> blocks;
};

const std::string named =
    "reading chunk [0-9]+ of the arena \\(0x[0-9a-f]+ to 0x[0-9a-f]+, tensor 'block [0-9]+' of 58.6 KiB";

TEST(LostBytesDeathTest, AFileThatOthersCutEndsWhoNeedsItWithAddressTensorAndCause) {
  const auto run = [] {
    const Program program(false);
    testing::cut_store();
    program.read_all();
    ::_exit(0);
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), named + ".*back from the slow tier: .*error.*lost");
}

TEST(LostBytesDeathTest, AFileThatOthersOverwriteEndsWhoNeedsItWhereChecksumsAreOn) {
  const auto run = [] {
    const Program program(true);
    testing::overwrite_store(80);
    program.read_all();
    ::_exit(0);
  };
  EXPECT_EXIT(run(), ::testing::KilledBySignal(SIGABRT), named + ".*checksum.*lost");
}

TEST(LostBytesDeathTest, WhoNeedsNoneOfTheLostBytesGoesOn) {
  const auto run = [] {
    Program program(true);
    testing::cut_store();
    program.blocks.clear();
    for (std::uint64_t b = 0; b < 64; ++b) {
      program.blocks.emplace_back(*program.session, 60'000);
      program.blocks.back().fill(b);
    }
    program.read_all();
    ::_exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(Checksums, AreNamedByTheMechanismAndChangeNoNumber) {
  Program program(true);
  EXPECT_NE(program.session->mechanism().find("checksums"), std::string::npos);
  program.read_all();
  EXPECT_GT(program.session->counters().bytes_in.value, 0u);
}

}  // namespace
}  // namespace vedette::lost_bytes_test
