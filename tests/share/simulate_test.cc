// Lists of jobs under every policy: what holds at each decision, from printed seeds; the published table; lists as
// text.
#include "share/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "share/jobs.h"

namespace vedette::simulate_test {
namespace {

using share::ListedJob;
using share::Moment;
using share::Outcome;
using share::Policy;
using share::Room;
using ::testing::HasSubstr;

constexpr std::int64_t second = 1'000'000'000;

ListedJob job(double seconds, std::uint64_t iterations) {
  return {.name = "job",
          .iterations = iterations,
          .iteration = {static_cast<std::int64_t>(seconds * second) / static_cast<std::int64_t>(iterations)},
          .persistent = 1_GiB,
          .ephemeral = 3_GiB,
          .floor = 4_GiB,
          .want = 4_GiB};
}

Outcome run(const std::vector<ListedJob>& jobs, const Policy& policy, Bytes capacity, std::uint64_t link = 0) {
  return *simulate(jobs, {.capacity = capacity, .policy = policy, .link_bytes_per_s = link});
}

Outcome run(const std::vector<ListedJob>& jobs, const char* policy, Bytes capacity = 4_GiB) {
  return run(jobs, *share::policy_named(policy), capacity);
}

double seconds(Nanoseconds time) { return static_cast<double>(time.value) / second; }

TEST(Simulation, ServesAsThePolicySays) {
  const std::vector<ListedJob> jobs{job(10, 10), job(2, 2), job(3, 3)};
  EXPECT_EQ(run(jobs, "fifo").mean(), Nanoseconds{(10 + 12 + 15) * second / 3});
  EXPECT_EQ(run(jobs, "srtf").mean(), Nanoseconds{(15 + 2 + 5) * second / 3});
  // rounds of one iteration each: the second ends in its second round, the third in its third
  EXPECT_EQ(run(jobs, "fair").mean(), Nanoseconds{(15 + 5 + 8) * second / 3});
  EXPECT_EQ(run(jobs, "pack").turns, 3u);
  EXPECT_EQ(run(jobs, "pack").makespan, Nanoseconds{15 * second}) << "one fits at a time";
  EXPECT_EQ(run(jobs, "pack", 12_GiB).makespan, Nanoseconds{15 * second}) << "the device is busy all the time";
}

TEST(Simulation, WhatKeepsNothingBusyIsDoneBesideOthers) {
  std::vector<ListedJob> jobs{job(10, 10), job(10, 10)};
  for (ListedJob& each : jobs) each.busy = 0.5;
  EXPECT_EQ(run(jobs, "fifo", 8_GiB).makespan, Nanoseconds{20 * second});
  EXPECT_LT(seconds(run(jobs, "pack", 8_GiB).makespan), 15.5) << "they take turns, once they are out of step";
  for (ListedJob& each : jobs) each.busy = 1, each.start_up = {4 * second};
  EXPECT_EQ(run(jobs, "fifo", 8_GiB).makespan, Nanoseconds{28 * second});
  EXPECT_EQ(run(jobs, "pack", 8_GiB).makespan, Nanoseconds{24 * second});
}

TEST(Simulation, JobsThatStartUpANanosecondApartBothGoOn) {
  std::vector<ListedJob> jobs{job(1, 1), job(1, 1)};
  jobs[0].start_up = {4 * second};
  jobs[1].start_up = {4 * second + 1};
  EXPECT_EQ(run(jobs, "pack", 8_GiB).makespan, Nanoseconds{6 * second});
}

TEST(Simulation, WhatPersistsComesBackAtTheSpeedOfTheLink) {
  const std::vector<ListedJob> jobs{job(4, 4), job(4, 4)};
  const Policy& fair = *share::policy_named("fair");
  EXPECT_EQ(run(jobs, fair, 4_GiB).makespan, Nanoseconds{8 * second});
  const Outcome slow = run(jobs, fair, 4_GiB, std::uint64_t{1} << 30);
  EXPECT_EQ(slow.makespan, Nanoseconds{(8 + 6) * second}) << "each has three turns that are not its first";
  EXPECT_EQ(slow.came_back, 6_GiB);
  EXPECT_EQ(run(jobs, fair, 5_GiB, std::uint64_t{1} << 30).came_back, Bytes{}) << "both stay";
}

TEST(Simulation, RefusesAJobThatDoesNotFitByItself) {
  const auto outcome = simulate(std::vector{job(1, 1)}, {.capacity = 3_GiB, .policy = *share::policy_named("fifo")});
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("job runs with 4.0 GiB (4294967296 bytes) at least"));
}

// What always holds, of every decision of a simulation.
struct Watch {
  Bytes capacity;
  const Policy* policy = nullptr;
  std::uint64_t decisions = 0;
  std::string fault;

  static void see(void* self, const Moment& moment) { static_cast<Watch*>(self)->see(moment); }

  void see(const Moment& moment) {
    ++decisions;
    Bytes sum, persistent;
    std::map<std::uint32_t, Bytes> lanes;
    std::map<std::uint32_t, int> turns_of_lane;
    int turns = 0;
    for (std::size_t j = 0; j < moment.jobs.size(); ++j) {
      const ListedJob& listed = moment.list[j];
      const share::Grant& grant = moment.grants[j];
      sum += grant.lease;
      turns += grant.turn ? 1 : 0;
      if (grant.lane) {
        lanes[*grant.lane] = std::max(lanes[*grant.lane], listed.ephemeral);
        persistent += listed.persistent;
        if (grant.turn && ++turns_of_lane[*grant.lane] > 1) fail("two run in a lane", moment.now);
      }
      if (grant.turn && grant.lease < listed.floor) fail(listed.name + " runs below its floor", moment.now);
      if (moment.jobs[j].started && policy->room != Room::lanes && grant.lease < listed.rest)
        fail(listed.name + " is below its rest", moment.now);
      if (grant.lease > std::max(listed.want, listed.persistent + listed.ephemeral))
        fail(listed.name + " has more than it wants", moment.now);
    }
    if (sum > capacity) fail("leases are beyond the memory", moment.now);
    for (const auto& [lane, size] : lanes) persistent += size;
    if (persistent > capacity) fail("the condition of lanes does not hold", moment.now);
    if (policy->room == Room::turns && turns > 1) fail("two have the turn", moment.now);
    if (turns == 0 && !moment.jobs.empty()) fail("nothing runs", moment.now);
  }

  void fail(const std::string& what, Nanoseconds now) {
    if (fault.empty()) fault = what + " at " + std::to_string(seconds(now)) + " s";
  }
};

std::vector<ListedJob> random_jobs(std::uint64_t seed, Bytes capacity) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t most) { return random() % (most + 1); };
  std::vector<ListedJob> jobs(3 + below(17));
  for (ListedJob& each : jobs) {
    each.name = "job" + std::to_string(&each - jobs.data());
    each.arrival = {static_cast<std::int64_t>(below(20)) * second};
    each.iterations = 1 + below(30);
    each.iteration = {static_cast<std::int64_t>(1 + below(2000)) * 1'000'000};
    each.start_up = {static_cast<std::int64_t>(below(3)) * second};
    each.busy = 0.25 * static_cast<double>(1 + below(3));
    each.weight = static_cast<double>(1 + below(3));
    const std::uint64_t peak = 1 + below(capacity.value - 1);
    each.persistent = {below(peak)};
    each.ephemeral = {peak - each.persistent.value};
    each.want = {peak};
    each.floor = {peak / 2 + below(peak - peak / 2)};
    each.rest = {below(each.floor.value)};
    if (below(1) == 0) each.profile = {{each.floor, {static_cast<std::int64_t>(below(1000)) * 1'000'000}}};
  }
  return jobs;
}

TEST(Simulation, KeepsItsPromisesOnRandomLists) {
  constexpr Bytes capacity = 16_GiB;
  std::uint64_t decisions = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const std::vector<ListedJob> jobs = random_jobs(seed, capacity);
    for (Policy policy : share::policies()) {
      // those of Salus run with all of P + E; the others with the floor
      std::vector<ListedJob> list = jobs;
      if (policy.room == Room::lanes)
        for (ListedJob& each : list) each.floor = each.want;
      if (seed % 3 == 0) policy.quantum = {static_cast<std::int64_t>(seed) * 100'000'000};
      Watch watch{.capacity = capacity, .policy = &policy};
      const auto outcome = simulate(list, {.capacity = capacity,
                                           .policy = policy,
                                           .link_bytes_per_s = seed % 2 * 4'000'000'000,
                                           .watch = &Watch::see,
                                           .watcher = &watch});
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      ASSERT_EQ(watch.fault, "") << policy.name << ", seed " << seed;
      decisions += watch.decisions;
      for (std::size_t j = 0; j < list.size(); ++j)
        ASSERT_GE(outcome->completion[j].value + second / 1000, list[j].alone().value) << policy.name << " " << seed;
    }
  }
  EXPECT_GT(decisions, 20'000u);
}

// A long job, and short ones that come without an end in sight: more of them than the memory and the device could ever
// serve first.
TEST(Simulation, LetsNoJobStarve) {
  std::vector<ListedJob> jobs{job(60, 60)};
  jobs[0].floor = jobs[0].want = 14_GiB;  // it needs nearly all
  constexpr int short_ones = 10'000;
  for (int s = 0; s < short_ones; ++s) {
    jobs.push_back(job(1, 2));
    jobs.back().arrival = {s * second};
  }
  for (const char* policy : {"fifo", "srtf", "fair", "pack"}) {
    const Outcome outcome = run(jobs, policy, 16_GiB);
    EXPECT_LT(seconds(outcome.completion[0]), 8000) << policy;
  }
  Policy without = *share::policy_named("srtf");
  without.ageing = 0;
  EXPECT_GT(seconds(run(jobs, without, 16_GiB).completion[0]), 9'000) << "so ageing is what helps";
}

// Salus, table 2: FIFO 170.6, SRTF 53.4, FAIR 96.6, PACK 145.5 minutes on average; makespans 303.4 and 287.4. The
// factor is that of the lengths, whose list is not published.
TEST(Published, FollowsFromTheLengthsOfTheJobs) {
  constexpr int lists = 3;
  std::map<std::string, double> mean, makespan;
  for (int seed = 3; seed < 3 + lists; ++seed) {
    const std::vector<ListedJob> jobs = share::salus_jobs(static_cast<std::uint64_t>(seed));
    ASSERT_EQ(jobs.size(), 100u);
    for (const char* policy : {"fifo", "srtf", "fair", "pack"}) {
      const Outcome outcome = run(jobs, policy, 14_GiB);
      mean[policy] += seconds(outcome.mean()) / lists / 60;
      makespan[policy] += seconds(outcome.makespan) / lists / 60;
    }
  }
  EXPECT_NEAR(makespan["fifo"], 303.4, 0.5);
  EXPECT_NEAR(mean["fifo"] / mean["srtf"], 3.0, 0.25);
  EXPECT_NEAR(mean["fair"] / mean["srtf"], 1.9, 0.1);
  EXPECT_NEAR(makespan["pack"] / makespan["fifo"], 0.94, 0.03);
}

TEST(List, ReadsWhatItWrites) {
  std::vector<ListedJob> jobs = share::salus_jobs(3);
  jobs[1].profile = {{1_GiB, {5}}, {2_GiB, {3}}};
  const std::string text = share::format_jobs(jobs);
  const auto again = share::parse_jobs(text, {});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(share::format_jobs(*again), text);
  EXPECT_EQ(again->at(1).profile.at(1).stall, Nanoseconds{3});
}

TEST(List, HasDefaultsAndNamesTheLineThatIsWrong) {
  const std::string head = "name,iterations,iteration_s,persistent,ephemeral\n";
  const auto read = [](const std::string& text) { return share::parse_jobs(text, {}); };
  const auto one = read(head + "# a note\n\na,10,0.5,1GiB,3GiB\r\n");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(one->at(0).floor, 4_GiB);
  EXPECT_EQ(one->at(0).rest, 1_GiB);
  EXPECT_EQ(one->at(0).alone(), Nanoseconds{5 * second});
  const auto refused = [&](const std::string& text) {
    const auto jobs = read(text);
    return jobs.ok() ? "" : jobs.error().message;
  };
  EXPECT_THAT(refused("name,speed\n"), HasSubstr("line 1: there is no column 'speed'"));
  EXPECT_THAT(refused(head), HasSubstr("there is no job"));
  EXPECT_THAT(refused(head + "a,10,0.5,1GiB\n"), HasSubstr("line 2: it has another number of columns"));
  EXPECT_THAT(refused(head + "a,10,0.5,1GiB,3GB\n"), HasSubstr("line 2: '3GB' of ephemeral is no size"));
  EXPECT_THAT(refused(head + "a,0,0.5,1GiB,3GiB\n"), HasSubstr("'0' of iterations is no number from 1"));
  const std::string long_job = "a,600000000,0.0000001,1GiB,1GiB\n";
  EXPECT_EQ(refused(head + long_job), "");
  EXPECT_THAT(refused(head + long_job + long_job),
              HasSubstr("line 3: the jobs take more than 1,000,000,000 iterations"));
  EXPECT_THAT(refused(head + "a,10,nan,1GiB,3GiB\n"), HasSubstr("'nan' of iteration_s"));
  EXPECT_THAT(refused(head + "a,10,,1GiB,3GiB\n"), HasSubstr("it has no iteration_s"));
  EXPECT_THAT(refused("name,iterations,iteration_s,persistent,ephemeral,floor\na,1,1,1GiB,1GiB,3GiB\n"),
              HasSubstr("rest <= floor <= want does not hold"));
}

}  // namespace
}  // namespace vedette::simulate_test
