// What replays of drawn programs move, byte for byte, and how long they take: redesigns change nothing of it.
#include "support/goldens.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "session/drawn.h"
#include "session/replay.h"

namespace vedette::goldens_test {
namespace {

using testing::Drawn;
using testing::LinkStore;
using testing::ReplayPlayer;

TEST(Goldens, ReplaysMoveThoseBytes) {
  testing::Goldens found;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    for (const char* policy : {"vedette", "on-demand", "sentinel"}) {
      for (const std::int64_t moving : {1, 4}) {  // a chunk takes as long as so many ops compute with one
        ReplayPlayer player(Drawn::budget(seed), policy, Nanoseconds{LinkStore::of_a_chunk.value / moving});
        Drawn program(player, seed);
        program.run();
        const Counters moved = player.counters();
        found[std::string(policy) + " seed " + std::to_string(seed) + " link " + std::to_string(moving)] =
            std::to_string(moved.bytes_in.value) + " in, " + std::to_string(moved.bytes_out.value) + " out, " +
            std::to_string(moved.faults) + " faults, " + std::to_string(player.time().value) + " ns";
      }
    }
  }
  testing::expect_goldens("session/goldens.txt", found);
}

}  // namespace
}  // namespace vedette::goldens_test
