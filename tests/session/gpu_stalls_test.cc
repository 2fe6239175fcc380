// The time of a step on the simulated GPU is its ops' own and its stalls, over a link so slow that most of it is
// waiting. A wait for room is a stall, also inside of an op.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "support/gpu_net.h"
#include "support/sanitized.h"

namespace vedette::testing::gpu_stalls_test {
namespace {

constexpr std::size_t layers = 8, words = 64 << 10;
constexpr int steps = 16, compared = 6;
constexpr double slow_link = sanitized ? 0.01 : 0.1;  // GB/s: the bottleneck, also where a sanitizer slows ops down

struct Step {
  Nanoseconds began, time;
  Nanoseconds ops, stalls, in_allocations;  // `ops` without their stalls
  std::uint64_t stalled = 0;                // as its counters have it
};

class Clock final : public Observer {
 public:
  std::vector<Step> heard;
  void step_began(std::uint64_t, Nanoseconds now) override { heard.push_back({.began = now}); }
  void op_began(std::uint64_t, OpIndex, std::string_view, Nanoseconds now) override { op_ = now, in_op_ = {}; }
  void op_ended(std::uint64_t, OpIndex, Nanoseconds now) override {
    heard.back().ops += now - op_ - in_op_;
    op_ = Nanoseconds{std::int64_t{1} << 62};  // stalls before the next op
  }
  void stalled(const StallRecord& stall) override {
    const Nanoseconds took = stall.ended - stall.began;
    heard.back().stalls += took;
    if (stall.in_allocation) heard.back().in_allocations += took;
    if (stall.began >= op_) in_op_ += took;
  }
  void step_ended(std::uint64_t, Nanoseconds now, const Counters& of_this_step) override {
    heard.back().time = now - heard.back().began;
    heard.back().stalled = of_this_step.stall_ns;
  }

 private:
  Nanoseconds op_{std::int64_t{1} << 62}, in_op_;
};

struct Ran {
  std::vector<Step> last;  // steps by a plan
  std::int64_t stalled = 0, counted = 0;

  template <class Of>
  double median(Of of) const {
    std::vector<double> all;
    for (const Step& step : last) all.push_back(of(step));
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
  }
};

class GpuStalls : public SimulatedGpu {
 protected:
  struct How {
    double gbs = 0;  // of the link; 0: as fast as a copy can be
    bool born_in_ops = false;
    bool ahead = true;  // the host may queue several steps at once
  };
  static Ran train(const How& how) {
    control().choose({.memory = std::size_t{256} << 20, .gbs = how.gbs});
    Clock clock;
    Ran ran;
    {
      WordsOnGpu gpu({.fast_memory = 2_MiB, .policy = "vedette", .observer = &clock});
      NetOnGpu net(gpu, layers, words);
      net.born_in_ops = how.born_in_ops;
      for (std::uint32_t s = 0; s < steps; ++s) {
        net.step(s);
        if (!how.ahead) gpu.stream.synchronize().value();
      }
      EXPECT_EQ(gpu.session->phase(), "planned");
      net.step(steps);  // all before it are counted by now, where the host is not ahead
      ran.counted = static_cast<std::int64_t>(gpu.session->counters().stall_ns);
      net.expect_right();
      gpu.session.reset();
    }
    EXPECT_EQ(clock.heard.size(), static_cast<std::size_t>(steps) + 1);
    clock.heard.pop_back();
    for (const Step& step : clock.heard) ran.stalled += step.stalls.value;
    ran.last.assign(clock.heard.end() - compared, clock.heard.end());
    return ran;
  }
};

double share(Nanoseconds part, Nanoseconds whole) {
  return static_cast<double>(part.value) / static_cast<double>(whole.value);
}

void expect_all_is_told(const Ran& slow, const Ran& fast) {
  const double told = slow.median([](const Step&s) { return share(s.ops + s.stalls, s.time); }),
               waiting = slow.median([](const Step&s) { return share(s.stalls, s.time); }),
               for_room = slow.median([](const Step&s) { return share(s.in_allocations, s.time); });
  const auto own = [](const Step& s) { return static_cast<double>(s.ops.value); };
  const double time = slow.median([](const Step& s) { return static_cast<double>(s.time.value); });
  std::printf(
      "a step of %.1f ms: %.3f told, %.3f of it stalls, %.3f for room; ops take %.2f ms, over a fast link %.2f\n",
      time / 1e6, told, waiting, for_room, slow.median(own) / 1e6, fast.median(own) / 1e6);
  EXPECT_GT(told, 0.97);
  EXPECT_LT(told, 1.001);
  EXPECT_GT(waiting, 0.5) << "the link is no bottleneck";
  EXPECT_GT(for_room, 0.01) << "no birth waits for the copy out of its place";
  EXPECT_LT(slow.median(own), 2 * fast.median(own) + 0.05 * time) << "ops take as long as over a fast link";
  for (const Step& step : slow.last) EXPECT_EQ(step.stalled, static_cast<std::uint64_t>(step.stalls.value));
}

TEST_F(GpuStalls, TheTimeOfAStepIsItsOpsAndItsStallsWhereResultsAreBornBeforeTheirOps) {
  expect_all_is_told(train({.gbs = slow_link}), train({}));
}

TEST_F(GpuStalls, TheTimeOfAStepIsItsOpsAndItsStallsWhereResultsAreBornInTheirOps) {
  expect_all_is_told(train({.gbs = slow_link, .born_in_ops = true}), train({.born_in_ops = true}));
}

// The policy learns from these, which come from other events of the same steps.
TEST_F(GpuStalls, TheSessionCountsThoseThatAnObserverHears) {
  for (const bool born_in_ops : {false, true}) {
    const Ran ran = train({.gbs = slow_link, .born_in_ops = born_in_ops, .ahead = false});
    EXPECT_NEAR(static_cast<double>(ran.counted), static_cast<double>(ran.stalled),
                0.03 * static_cast<double>(ran.stalled));
  }
}

}  // namespace
}  // namespace vedette::testing::gpu_stalls_test
