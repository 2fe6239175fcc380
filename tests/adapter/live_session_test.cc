// What `vedette top` sees of a session that does not record, and of one that does.
#include "adapter/torch/live_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include "model/wear.h"
#include "profiler/recorder.h"
#include "session/loop.h"

namespace vedette::live_session_test {
namespace {

using adapter::LiveSession;
using testing::Loop;
using testing::open_session;

// 5 MB at the peak in 2 MiB: it moves.
std::unique_ptr<Session> small_session(Observer* observer = nullptr) {
  return open_session(2_MiB, "nvme:.", "vedette", 64_KiB, observer);
}

void run(Session& session, LiveSession& live, Loop& loop, std::uint64_t steps) {
  for (std::uint64_t s = 0; s < steps; ++s) {
    live.step_begins();
    loop.step(s);
    std::this_thread::sleep_for(std::chrono::milliseconds(101));  // a page is written ten times a second
    live.step_ended(session);
  }
}

TEST(LiveSession, ShowsTheCountersOfASessionThatDoesNotRecord) {
  const auto session = small_session();
  const Machine machine = session->machine();
  std::atomic<int> asked = 0;
  LiveSession live("unrecorded", "vedette", nullptr, [&](const Trace& step, const Machine& of) {
    ++asked;
    EXPECT_EQ(of, machine);
    return Nanoseconds{static_cast<std::int64_t>(step.ops.size()) * 1000};
  });
  if (!read_live(::getpid())) GTEST_SKIP() << "no page can be shown in " << live_directory;
  Loop loop(*session, 16, 100'000);
  run(*session, live, loop, 8);
  const Counters counters = session->counters();
  for (int i = 0; i < 500 && (*read_live(::getpid()))[Live::bound_ns] == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const LiveReading shown = *read_live(::getpid());
  EXPECT_EQ(shown.program, "unrecorded");
  EXPECT_EQ(shown.policy, "vedette");
  EXPECT_EQ(shown[Live::step], 8u);
  EXPECT_EQ(shown[Live::ops], counters.ops);
  EXPECT_STREQ(live_phases[shown[Live::phase]], "planned");
  EXPECT_EQ(shown[Live::budget_bytes], (2_MiB).value);
  EXPECT_EQ(shown[Live::bytes_in], counters.bytes_in.value);
  EXPECT_GT(shown[Live::disk_bytes_out], 0u);
  EXPECT_EQ(shown[Live::disk_bytes_out], written_to_disk(counters, machine).value);
  EXPECT_GE(shown[Live::steps_ns], 8 * 101'000'000u);
  EXPECT_GE(shown[Live::last_step_ns], 101'000'000u);
  EXPECT_EQ(shown[Live::bound_ns], session->planned_steps().back().trace.ops.size() * 1000);
  EXPECT_GE(asked.load(), 1);
  std::uint64_t hot = 0;
  for (std::size_t bin = 0; bin < heat_bins; ++bin) hot += shown[heat_bin(bin)];
  EXPECT_GT(hot, 16 * 100'000u) << "weights live as a step ends";
}

TEST(LiveSession, IsSilentWithoutAStepAndLeavesNoPage) {
  {
    const auto session = small_session();
    LiveSession live("idle", "vedette", nullptr, {});
    live.step_ended(*session);
    const auto shown = read_live(::getpid());
    if (!shown) GTEST_SKIP() << "no page can be shown in " << live_directory;
    EXPECT_EQ((*shown)[Live::steps_ns], 0u);
  }
  EXPECT_FALSE(read_live(::getpid()).ok());
}

TEST(LiveSession, AddsTheBoundToTheCountersOfARecorder) {
  const auto recorder = Recorder::open({.path = "live_session.vedette", .program = "recorded"}).value();
  if (recorder->live() == nullptr) GTEST_SKIP() << "no page can be shown in " << live_directory;
  {
    const auto session = small_session(recorder.get());
    LiveSession live("ignored", "vedette", recorder->live(),
                     [](const Trace&, const Machine&) { return Nanoseconds{7}; });
    Loop loop(*session, 16, 100'000);
    run(*session, live, loop, 6);
  }
  const LiveReading shown = *read_live(::getpid());
  EXPECT_EQ(shown.program, "recorded");
  EXPECT_EQ(shown[Live::bound_ns], 7u);
  EXPECT_EQ(shown[Live::step], 6u);
}

}  // namespace
}  // namespace vedette::live_session_test
