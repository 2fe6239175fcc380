// Tensors in a GPU's memory that are dropped and recomputed, on the simulated device: the host's numbers in parts of
// the peak, without a race and without waits of the host.
#include <functional>
#include <list>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/gpu_net.h"
#include "support/sanitized.h"

namespace vedette::testing::gpu_recompute_test {
namespace {

using Tensor = WordsOnGpu::Tensor;

class GpuRecompute : public SimulatedGpu {};

constexpr std::size_t layers = 8, words = 64 << 10;

struct Ran {
  Counters counters;
  std::vector<Counters> steps;  // of each
  std::vector<unsigned> waits;  // of the host, in each
  std::string phase;
  std::vector<std::string> messages;
};

Counters difference(Counters a, const Counters& b) {
  a.bytes_in.value -= b.bytes_in.value;
  a.bytes_out.value -= b.bytes_out.value;
  a.ops_recomputed -= b.ops_recomputed;
  return a;
}

unsigned waits_so_far() {
  auto calls = control().calls();
  return calls["cuStreamSynchronize"] + calls["cuEventSynchronize"];
}

// A step by a plan that recomputes moves the same bytes as the one before it: every tensor was at its place.
bool repeats(const Counters& step, const Counters& before) {
  return step.ops_recomputed > 0 && step.ops_recomputed == before.ops_recomputed &&
         step.bytes_in.value == before.bytes_in.value && step.bytes_out.value == before.bytes_out.value;
}

// `until`: ends sooner, after a step of which it is true.
Ran run(Bytes budget, Recompute recompute, const std::string& policy = "vedette", int steps = 12,
        const std::function<bool(const Ran&)>& until = nullptr) {
  WordsOnGpu gpu({.fast_memory = budget, .slow = "host", .policy = policy, .recompute = recompute});
  gpu.recipes = true;
  NetOnGpu net(gpu, layers, words);
  Ran ran;
  for (int s = 0; s < steps; ++s) {
    const unsigned waits = waits_so_far();
    net.step(static_cast<std::uint32_t>(s));
    ran.waits.push_back(waits_so_far() - waits);
    gpu.stream.synchronize().value();  // the step's times are known when the next one ends
    const Counters now = gpu.session->counters();
    ran.steps.push_back(difference(now, ran.counters));
    ran.counters = now;
    if (until && until(ran)) break;
  }
  ran.phase = std::string(gpu.session->phase());
  ran.messages = gpu.messages;
  net.expect_right();
  EXPECT_FALSE(gpu.session->take_error());
  return ran;
}

TEST_F(GpuRecompute, WithEverythingDroppedAtEveryOpportunityHasTheHostsNumbers) {
  const Ran whole = run(16_MiB, Recompute::off);
  EXPECT_EQ(whole.counters.ops_recomputed, 0u);
  for (const std::uint64_t percent : {200u, 100u, 75u, 50u, 35u}) {
    SCOPED_TRACE(std::to_string(percent) + " %");
    const Bytes budget{whole.counters.resident_max_bytes.value / 100 * percent};
    const Ran ran = run(budget, Recompute::always);
    EXPECT_LE(ran.counters.resident_max_bytes.value, budget.value);
    EXPECT_GT(ran.steps.back().ops_recomputed, layers);
    EXPECT_THAT(ran.messages, ::testing::IsEmpty());
  }
}

// A link on which a tensor takes 12 ms, where an op takes a two-hundredth of that. vedette tries a plan that recomputes
// and one that does not, each for some steps, and stays with the one that was measured to be better. Beside other load
// plans come later, so steps run until one repeats that pays.
TEST_F(GpuRecompute, APlanThatRecomputesMovesLessOnASlowLink) {
  if (testing::sanitized) GTEST_SKIP() << "under a sanitizer an op takes as long as the link: nothing is recomputed";
  control().choose(simulated::Options{.memory = std::size_t{256} << 20, .gbs = 0.02});
  const Bytes budget{run(16_MiB, Recompute::off, "vedette", 5).counters.resident_max_bytes.value * 6 / 10};
  const Ran moved = run(budget, Recompute::off, "vedette", 8);
  const auto writes_less = [](const Counters& a, const Counters& b) { return a.bytes_out.value < b.bytes_out.value; };
  const Counters without = *std::min_element(moved.steps.begin() + 4, moved.steps.end(), writes_less);
  const auto pays_again = [&](const Ran& ran) {
    return ran.steps.size() > 6 && repeats(ran.steps.back(), ran.steps[ran.steps.size() - 2]) &&
           writes_less(ran.steps.back(), without);
  };
  const Ran made = run(budget, Recompute::planned, "vedette", 40, pays_again);
  EXPECT_EQ(moved.counters.ops_recomputed, 0u);
  EXPECT_EQ(made.phase, "planned");
  EXPECT_GT(made.counters.recompute_ns, 0u);
  EXPECT_LE(made.counters.resident_max_bytes.value, budget.value);
  EXPECT_THAT(made.messages, ::testing::IsEmpty());
  const Counters least = *std::min_element(made.steps.begin() + 4, made.steps.end(), writes_less);
  EXPECT_GT(least.ops_recomputed, 0u);
  EXPECT_LT(least.bytes_out.value, without.bytes_out.value);
  EXPECT_TRUE(pays_again(made));
  for (std::size_t s = 4; s < made.steps.size(); ++s) EXPECT_EQ(made.waits[s], 0u) << "the host waited in step " << s;
  const auto kib = [](std::uint64_t bytes) { return static_cast<unsigned long>(bytes >> 10); };
  std::printf("a step brings %lu and writes %lu KiB without, %lu and %lu KiB with %lu ops run again\n",
              kib(without.bytes_in.value), kib(without.bytes_out.value), kib(least.bytes_in.value),
              kib(least.bytes_out.value), static_cast<unsigned long>(least.ops_recomputed));
}

void expect_right_where_it_may_recompute(const std::string& policy) {
  const Ran ran = run(3_MiB, Recompute::planned, policy, 6);
  EXPECT_LE(ran.counters.resident_max_bytes.value, 3 << 20) << policy;
  if (ran.counters.ops_recomputed > 0)
    std::printf("%s: %lu ops ran again\n", policy.c_str(), static_cast<unsigned long>(ran.counters.ops_recomputed));
}
TEST_F(GpuRecompute, PlansOfPoliciesOfSeveralKindsHaveTheHostsNumbers) {
  control().choose(simulated::Options{.memory = std::size_t{256} << 20, .gbs = 0.2});
  for (const char* const policy : {"vedette", "capuchin", "superneurons", "dtr", "sentinel"}) {
    expect_right_where_it_may_recompute(policy);
    if (HasFailure()) FAIL() << policy;
  }
}
TEST_F(GpuRecompute, PlansOfEveryPolicyHaveTheHostsNumbers) {
  control().choose(simulated::Options{.memory = std::size_t{256} << 20, .gbs = 0.2});
  for (const PolicyEntry& policy : policies()) {
    expect_right_where_it_may_recompute(std::string(policy.name));
    if (HasFailure()) FAIL() << policy.name;
  }
}

TEST_F(GpuRecompute, ARecipeThatGivesOtherBytesIsNeverUsed) {
  WordsOnGpu gpu({.fast_memory = 3_MiB, .slow = "host", .recompute = Recompute::always});
  gpu.recipes = true;
  gpu.differs = 1;
  NetOnGpu net(gpu, layers, words);
  for (std::uint32_t s = 0; s < 6; ++s) net.step(s);
  net.expect_right();
  EXPECT_EQ(gpu.session->counters().ops_recomputed, 0u);
}

// What an observer hears of recomputation: in its step, with the device's times.
class Listener final : public Observer {
 public:
  void step_began(std::uint64_t, Nanoseconds now) override { began = now; }
  void recomputed(const RecomputeRecord& record) override {
    EXPECT_GE(record.began, began);
    EXPECT_GE(record.ended, record.began);
    ops += record.ops;
    ns += record.ended - record.began;
    ++tensors;
  }
  void step_ended(std::uint64_t, Nanoseconds, const Counters& of_this_step) override {
    told.ops_recomputed += of_this_step.ops_recomputed;
    told.recompute_ns += of_this_step.recompute_ns;
  }
  Nanoseconds began, ns;
  std::uint64_t ops = 0, tensors = 0;
  Counters told;
};

TEST_F(GpuRecompute, AnObserverHearsOfAllThatWasRecomputed) {
  Listener listener;
  Counters counters;
  {
    WordsOnGpu gpu({.fast_memory = 3_MiB, .slow = "host", .observer = &listener, .recompute = Recompute::always});
    gpu.recipes = true;
    NetOnGpu net(gpu, layers, words);
    for (std::uint32_t s = 0; s < 8; ++s) net.step(s);
    counters = gpu.session->counters();
    gpu.session.reset();  // what is not known yet is told now
  }
  EXPECT_GT(listener.tensors, 0u);
  EXPECT_EQ(listener.ops, counters.ops_recomputed);
  EXPECT_EQ(listener.told.ops_recomputed, counters.ops_recomputed);
  EXPECT_GT(listener.ns.value, 0);
  EXPECT_EQ(listener.told.recompute_ns, static_cast<std::uint64_t>(listener.ns.value));
}

class InTheMiddle : public GpuRecompute {
 protected:
  void run(const std::function<void(NetOnGpu&, std::vector<Tensor>&)>& in_the_middle) {
    gpu().recipes = true;
    for (std::uint32_t s = 0; s < 10; ++s) {
      if (s >= 5) net().in_the_middle = [&](std::vector<Tensor>& activations) { in_the_middle(net(), activations); };
      net().step(s);
    }
    net().expect_right();
    EXPECT_GT(gpu().session->counters().ops_recomputed, 0u);
    EXPECT_LE(gpu().session->counters().resident_max_bytes.value, 3 << 20);
  }
  void SetUp() override {
    GpuRecompute::SetUp();
    gpu_.emplace(SessionOptions{.fast_memory = 3_MiB, .slow = "host", .recompute = Recompute::always});
    net_.emplace(*gpu_, layers, words);
  }
  void TearDown() override {
    net_.reset();
    gpu_.reset();
    GpuRecompute::TearDown();
  }
  WordsOnGpu& gpu() { return *gpu_; }
  NetOnGpu& net() { return *net_; }

 private:
  std::optional<WordsOnGpu> gpu_;
  std::optional<NetOnGpu> net_;
};

TEST_F(InTheMiddle, AnOpThatThePlanDoesNotHaveFindsAllMade) {
  run([&](NetOnGpu&, std::vector<Tensor>& activations) { gpu().expect_right(activations[3], "activation"); });
}

TEST_F(InTheMiddle, ASourceThatChangesIsReadBefore) {
  run([&](NetOnGpu&, std::vector<Tensor>& activations) { gpu().op("change", activations[1], {}); });
}

TEST_F(InTheMiddle, ATensorThatIsHeldIsMade) {
  run([&](NetOnGpu&, std::vector<Tensor>& activations) {
    for (const Tensor& each : activations) {
      const auto held = gpu().session->resident(each.name);
      EXPECT_NE(gpu().session->gpu()->address(each.name), 0u);
    }
  });
}

// No op announces the write: its own recipe would make the tensor without it.
TEST_F(InTheMiddle, WhatIsWrittenWhileItIsHeldIsNotMadeWithoutIt) {
  run([&](NetOnGpu&, std::vector<Tensor>& activations) {
    gpu().recipes = false;
    for (const std::size_t written : {1, 2, 4, 6}) {
      const auto held = gpu().session->resident(activations[written].name);
      gpu().in_op("written", activations[written], {}, 9u);
    }
    gpu().recipes = true;
  });
}

// Of what was in place it would have to wait for an event of the program's; what was dropped the session orders.
TEST_F(InTheMiddle, AnotherThreadOnAnotherStreamReadsWhatIsDropped) {
  cuda::Stream other = cuda::Stream::create(gpu().device).value();
  std::list<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> looked;  // found and expected
  run([&](NetOnGpu&, std::vector<Tensor>& activations) {
    std::thread([&] {
      const cuda::Current current(*gpu().device);
      gpu().work_on(other.handle());
      for (const Tensor& each : activations) {
        if (gpu().session->gpu()->address(each.name) != 0) continue;
        const auto held = gpu().session->resident(each.name);
        auto& found = looked.emplace_back(std::vector<std::uint32_t>(each.words.size()), each.words).first;
        const void* const at = reinterpret_cast<const void*>(gpu().session->gpu()->address(each.name));
        control().launch(other.handle(), "look there", {{.at = at, .bytes = found.size() * 4}},
                         [&found, at] { std::memcpy(found.data(), control().reach(at), found.size() * 4); });
      }
    }).join();
  });
  other.synchronize().value();
  EXPECT_FALSE(looked.empty());
  for (const auto& [found, expected] : looked) EXPECT_EQ(found, expected);
}

TEST_F(InTheMiddle, AStepThatEndsEarlyHasItsTensorsMade) {
  std::vector<Tensor> survivors;
  const auto leave = [&](NetOnGpu&, std::vector<Tensor>& activations) {
    survivors.swap(activations);
    throw std::runtime_error("in the middle of a step");
  };
  EXPECT_THROW(run(leave), std::runtime_error);
  for (Tensor& each : survivors) {
    gpu().expect_right(each, "a survivor");
    gpu().drop(each);
  }
  net().in_the_middle = {};
  net().step(7);
  net().expect_right();
  EXPECT_GT(gpu().session->counters().ops_recomputed, 0u);
}

}  // namespace
}  // namespace vedette::testing::gpu_recompute_test
