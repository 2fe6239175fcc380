// Which job runs, and with how much memory: each policy on states that a person can follow, and the condition of lanes.
#include "share/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "share/lanes.h"

namespace vedette::decide_test {
namespace {

using share::decide;
using share::Grant;
using share::Job;
using share::policy_named;
using ::testing::ElementsAre;

Job job(std::uint64_t floor_mib, std::uint64_t want_mib, std::int64_t remaining_s) {
  return {.floor = {floor_mib << 20},
          .want = {want_mib << 20},
          .step = {1'000'000'000},
          .remaining = Nanoseconds{remaining_s * 1'000'000'000}};
}

Job started(Job job) {
  job.started = true;
  return job;
}

std::vector<int> running(const std::vector<Grant>& grants) {
  std::vector<int> turns;
  for (const Grant& grant : grants) turns.push_back(grant.turn ? 1 : 0);
  return turns;
}

std::vector<std::uint64_t> leases(const std::vector<Grant>& grants) {
  std::vector<std::uint64_t> mib;
  for (const Grant& grant : grants) mib.push_back(grant.lease.value >> 20);
  return mib;
}

TEST(Turns, FifoServesTheFirstUntilItIsDone) {
  const std::vector<Job> jobs{job(4, 8, 100), job(4, 8, 1)};
  const auto grants = decide(*policy_named("fifo"), jobs, 12_MiB);
  EXPECT_THAT(running(grants), ElementsAre(1, 0));
  EXPECT_THAT(leases(grants), ElementsAre(8, 0)) << "as much as it wants; the other has not begun";
}

TEST(Turns, ShortestRemainingTimeRunsAtTheEndOfTheOthersStep) {
  std::vector<Job> jobs{started(job(4, 8, 100)), job(4, 8, 1)};
  jobs[0].has_turn = jobs[0].in_step = true;
  EXPECT_THAT(running(decide(*policy_named("srtf"), jobs, 12_MiB)), ElementsAre(1, 0)) << "no step is cut";
  jobs[0].in_step = false;
  const auto grants = decide(*policy_named("srtf"), jobs, 12_MiB);
  EXPECT_THAT(running(grants), ElementsAre(0, 1));
  EXPECT_THAT(leases(grants), ElementsAre(4, 8)) << "what the runner does not want stays warm";
}

TEST(Turns, AJobThatHasWaitedLongComesBeforeAShorterOne) {
  std::vector<Job> jobs{started(job(4, 8, 100)), job(4, 8, 1)};
  jobs[0].waited = {100LL * 64 * 1'000'000'000};
  EXPECT_THAT(running(decide(*policy_named("srtf"), jobs, 12_MiB)), ElementsAre(1, 0));
}

TEST(Turns, FairServesWhatWasServedLeastByWeight) {
  std::vector<Job> jobs{started(job(4, 8, 9)), started(job(4, 8, 9))};
  jobs[0].used = {3'000'000'000}, jobs[1].used = {2'000'000'000};
  share::Policy fair = *policy_named("fair");
  EXPECT_THAT(running(decide(fair, jobs, 12_MiB)), ElementsAre(0, 1));
  jobs[0].weight = 2;
  EXPECT_THAT(running(decide(fair, jobs, 12_MiB)), ElementsAre(1, 0));
  jobs[1].has_turn = true;
  fair.quantum = {5'000'000'000};
  EXPECT_THAT(running(decide(fair, jobs, 12_MiB)), ElementsAre(0, 1)) << "its turn lasts a quantum";
}

TEST(Turns, NothingStartsThatWouldLeaveAStartedJobWithoutRoom) {
  std::vector<Job> jobs{started(job(8, 8, 100)), job(6, 6, 10), job(2, 2, 20)};
  for (Job& each : jobs) each.rest = {each.floor.value / 2};
  jobs[0].rest = 4_MiB;
  const auto grants = decide(*policy_named("srtf"), jobs, 10_MiB);
  EXPECT_THAT(running(grants), ElementsAre(1, 0, 0)) << "4 + 3 + 4 are too many, and the third would pass the second";
  EXPECT_THAT(running(decide(*policy_named("srtf"), jobs, 11_MiB)), ElementsAre(0, 1, 0));
}

TEST(Pack, RunsAllThatFitAtTheirFloor) {
  const std::vector<Job> jobs{job(4, 8, 9), job(8, 9, 9), job(4, 8, 9)};
  const auto grants = decide(*policy_named("pack"), jobs, 10_MiB);
  EXPECT_THAT(running(grants), ElementsAre(1, 0, 1)) << "the third passes the second, which has not waited long";
  EXPECT_THAT(leases(grants), ElementsAre(6, 0, 4));
  std::vector<Job> later = jobs;
  later[1].waited = policy_named("pack")->patience;
  EXPECT_THAT(running(decide(*policy_named("pack"), later, 10_MiB)), ElementsAre(1, 0, 0));
}

TEST(Pack, NothingBeginsPastAStartedJobThatHasNoRoomYet) {
  std::vector<Job> jobs{started(job(4, 8, 9)), started(job(10, 10, 9)), job(2, 2, 9)};
  jobs[0].rest = jobs[1].rest = 2_MiB;
  jobs[0].has_turn = jobs[0].in_step = true;
  jobs[1].waited = {1};
  const share::Policy& pack = *policy_named("pack");
  EXPECT_THAT(running(decide(pack, jobs, 12_MiB)), ElementsAre(1, 0, 0));
  jobs[0].in_step = false;
  EXPECT_THAT(running(decide(pack, jobs, 12_MiB)), ElementsAre(0, 1, 0)) << "it has waited longest";
  EXPECT_THAT(running(decide(pack, jobs, 11_MiB)), ElementsAre(1, 0, 1))
      << "the second's room will not come, and it holds none up";
}

TEST(Pack, GivesWhatIsLeftWhereAByteSavesTheMost) {
  const std::vector<share::StallAt> steep{{4_MiB, {900}}, {6_MiB, {100}}}, flat{{4_MiB, {400}}},
      late{{4_MiB, {800}}, {7_MiB, {800}}};
  std::vector<Job> jobs{job(4, 8, 9), job(4, 8, 9), job(4, 8, 9)};
  jobs[0].profile = flat, jobs[1].profile = steep, jobs[2].profile = late;
  const auto with = [&](Bytes capacity) { return leases(decide(*policy_named("pack"), jobs, capacity)); };
  EXPECT_THAT(with(13_MiB), ElementsAre(4, 5, 4)) << "400 a MiB";
  EXPECT_THAT(with(17_MiB), ElementsAre(4, 6, 7)) << "200 a MiB, though its gain comes with the last one";
  EXPECT_THAT(with(20_MiB), ElementsAre(6, 6, 8)) << "100 a MiB";
  jobs[0].weight = 5;
  EXPECT_THAT(with(13_MiB), ElementsAre(5, 4, 4));
}

TEST(Stall, IsALineBetweenThePointsOfAProfile) {
  const std::vector<share::StallAt> profile{{4_MiB, {800}}, {6_MiB, {400}}};
  Job each = job(4, 8, 1);
  EXPECT_EQ(stall_with(each, 4_MiB), Nanoseconds{0}) << "nothing is known";
  each.profile = profile;
  EXPECT_EQ(stall_with(each, 2_MiB), Nanoseconds{800});
  EXPECT_EQ(stall_with(each, 5_MiB), Nanoseconds{600});
  EXPECT_EQ(stall_with(each, 7_MiB), Nanoseconds{200});
  EXPECT_EQ(stall_with(each, 8_MiB), Nanoseconds{0});
}

Job in_lanes(std::uint64_t p_mib, std::uint64_t e_mib, std::optional<std::uint32_t> lane = {}) {
  Job each = job(p_mib + e_mib, p_mib + e_mib, 9);
  each.persistent = {p_mib << 20}, each.ephemeral = {e_mib << 20}, each.lane = lane;
  return each;
}

std::vector<int> lanes(const std::vector<Job>& jobs, Bytes capacity) {
  std::vector<int> found;
  for (const Grant& grant : decide(*policy_named("salus-fifo"), jobs, capacity))
    found.push_back(grant.lane ? static_cast<int>(*grant.lane) : -1);
  return found;
}

// The three ways of the paper, in their order; P = 1 everywhere.
TEST(Lanes, AreOpenedSharedAndGrownInThisOrder) {
  std::vector<Job> jobs{in_lanes(1, 4), in_lanes(1, 6)};
  EXPECT_THAT(lanes(jobs, 12_MiB), ElementsAre(0, 1)) << "1 + 1 + 4 + 6: each has its own";
  jobs[0].lane = 0, jobs[1].lane = 1;
  jobs.push_back(in_lanes(1, 4));
  EXPECT_THAT(lanes(jobs, 17_MiB), ElementsAre(0, 1, 2));
  EXPECT_THAT(lanes(jobs, 16_MiB), ElementsAre(0, 1, 0)) << "3 + 4 + 6 + 4 are 17: the smallest that is large enough";
  jobs[2] = in_lanes(1, 7);
  EXPECT_THAT(lanes(jobs, 16_MiB), ElementsAre(0, 1, 0)) << "3 + 6 + 7: the smallest grows";
  EXPECT_THAT(lanes(jobs, 15_MiB), ElementsAre(0, 1, 1)) << "3 + 4 + 7: that one would be too large";
  EXPECT_THAT(lanes(jobs, 13_MiB), ElementsAre(0, 1, -1)) << "none may grow: it waits";
  jobs.erase(jobs.begin() + 1);
  EXPECT_THAT(lanes(jobs, 13_MiB), ElementsAre(0, 1)) << "a lane has closed";
}

TEST(Lanes, OneOfEachRunsAtATime) {
  std::vector<Job> jobs{in_lanes(1, 4, 0), in_lanes(1, 3, 0), in_lanes(1, 6, 1)};
  jobs[0].remaining = Nanoseconds{5}, jobs[1].remaining = Nanoseconds{4};
  const auto grants = decide(*policy_named("salus-srtf"), jobs, 16_MiB);
  EXPECT_THAT(running(grants), ElementsAre(0, 1, 1));
  EXPECT_THAT(leases(grants), ElementsAre(1, 4, 7)) << "what persists stays";
  jobs[0].has_turn = jobs[0].in_step = true;
  EXPECT_THAT(running(decide(*policy_named("salus-srtf"), jobs, 16_MiB)), ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace vedette::decide_test
