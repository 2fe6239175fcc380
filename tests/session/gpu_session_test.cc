// A session whose fast memory is the simulated GPU's: a training loop has the host's numbers in a part of its peak, by
// a plan, without a race and without waits of the host.
#include <map>
#include <mutex>

#include "support/gpu_net.h"
#include "vedette/observer.h"

namespace vedette::testing::gpu_session_test {
namespace {

class GpuSession : public SimulatedGpu {};

constexpr std::size_t layers = 8, words = 64 << 10;  // activations of 256 KiB: 2.3 MiB of them, 2 MiB of weights

struct Ran {
  Counters first, later;  // of a planned step
  Bytes peak;
  std::string phase;
  std::vector<std::string> messages;
};

// vedette plans again while it learns from measured steps: at most six times, after three steps each, beside the
// program. On a busy machine that takes more of these short steps: then until two in a row have moved the same bytes.
constexpr int until_settled = 48, settled_at_last = 480;

Ran run(Bytes budget, const std::string& policy, int steps, const std::string& slow = "host") {
  WordsOnGpu gpu({.fast_memory = budget, .slow = slow, .policy = policy});
  NetOnGpu net(gpu, layers, words);
  Ran ran;
  std::vector<Counters> counters;
  const auto of_step = [&](std::size_t s) {
    Counters step = counters[s];
    step.bytes_in.value -= counters[s - 1].bytes_in.value;
    step.bytes_out.value -= counters[s - 1].bytes_out.value;
    return step;
  };
  const auto moves_on = [&] {
    return ran.first.bytes_in.value != ran.later.bytes_in.value ||
           ran.first.bytes_out.value != ran.later.bytes_out.value;
  };
  for (int s = 0; s < steps || (steps == until_settled && s < settled_at_last && moves_on()); ++s) {
    net.step(static_cast<std::uint32_t>(s));
    gpu.stream.synchronize().value();  // the step's times are known when the next one ends
    counters.push_back(gpu.session->counters());
    if (s < 2) continue;
    ran.first = of_step(counters.size() - 2);
    ran.later = of_step(counters.size() - 1);
  }
  ran.phase = gpu.session->phase();
  net.expect_right();
  ran.peak = {gpu.session->counters().resident_max_bytes.value};
  ran.messages = gpu.messages;
  EXPECT_FALSE(gpu.session->take_error());
  return ran;
}

// Counts the plans of steps with so many ops.
class PlansMade final : public Observer {
 public:
  void planned(std::uint64_t, std::uint64_t, const Trace& units, const Plan&) override {
    const std::lock_guard lock(guard_);
    ++by_ops_[units.ops.size()];
  }
  std::size_t of(std::size_t ops) {
    const std::lock_guard lock(guard_);
    return by_ops_[ops];
  }

 private:
  std::mutex guard_;
  std::map<std::size_t, std::size_t> by_ops_;
};

// Its ops move tensors that the plan has in place. The next step has them there again, by the same plan.
TEST_F(GpuSession, AnEvaluationBetweenStepsNeitherDiscardsNorRemakesAPlan) {
  constexpr std::size_t ops = 2 + 5 * layers;
  PlansMade plans;
  WordsOnGpu gpu({.fast_memory = 2_MiB, .slow = "host", .policy = "sentinel", .observer = &plans});
  NetOnGpu net(gpu, layers, words);
  std::uint32_t s = 0;
  std::size_t made = 0;
  for (int calm = 0; calm < 12 && s < settled_at_last; ++s) {
    net.step(s);
    gpu.stream.synchronize().value();
    calm = plans.of(ops) == made ? calm + 1 : 0;
    made = plans.of(ops);
  }
  ASSERT_EQ(gpu.session->phase(), "planned");
  ASSERT_GT(made, 0u);
  for (const std::uint32_t last = s + 12; s < last; ++s) {
    const std::uint64_t before = gpu.session->counters().bytes_in.value;
    for (std::uint32_t batch = 0; batch < 1 + s % 3; ++batch) net.evaluate(100 + batch);
    EXPECT_GT(gpu.session->counters().bytes_in.value, before) << "the evaluation moves nothing";
    net.step(s);
    EXPECT_EQ(gpu.session->phase(), "planned") << s;
  }
  net.expect_right();
  EXPECT_EQ(plans.of(ops), made);
}

// More leaves in forward than one piece of pinned memory holds, and nothing waits for the device between steps. What is
// registered between two steps, as a plan is made or taken, is none of a step.
TEST_F(GpuSession, AStepByItsPlanRegistersNoMemory) {
  WordsOnGpu gpu({.fast_memory = 40_MiB, .slow = "host", .policy = "vedette"});
  gpu.spin = 5'000'000;  // the device is slower than the host, which runs ahead of it
  NetOnGpu net(gpu, 12, 1 << 20);
  int planned = 0;
  unsigned before = 0;
  net.at_the_begin = [&] { before = pinned_pieces(); };
  net.in_the_middle = [&](const std::vector<WordsOnGpu::Tensor>&) {
    if (gpu.session->phase() != "planned") return;
    ++planned;
    EXPECT_EQ(pinned_pieces(), before) << "planned step " << planned;
  };
  for (std::uint32_t s = 0; s < 10; ++s) net.step(s);
  EXPECT_GT(planned, 4);
  net.expect_right();
}

TEST_F(GpuSession, TrainsInPartsOfItsPeakByAPlan) {
  const Ran whole = run(16_MiB, "vedette", until_settled);
  EXPECT_EQ(whole.later.bytes_in.value + whole.later.bytes_out.value, 0u) << "all of it fits";
  for (const std::uint64_t percent : {75u, 50u, 35u}) {
    const Bytes budget{whole.peak.value / 100 * percent};
    const Ran ran = run(budget, "vedette", until_settled);
    EXPECT_EQ(ran.phase, "planned") << percent;
    EXPECT_THAT(ran.messages, ::testing::IsEmpty()) << percent;
    EXPECT_LE(ran.peak, budget);
    EXPECT_GT(ran.later.bytes_out.value, 0u);
    // At least what cannot stay moves each way; a step by a plan moves the same bytes as the one before.
    EXPECT_EQ(ran.first.bytes_in.value, ran.later.bytes_in.value) << percent;
    EXPECT_EQ(ran.first.bytes_out.value, ran.later.bytes_out.value) << percent;
  }
}

TEST_F(GpuSession, EveryPolicyHasTheHostsNumbers) {
  for (const PolicyEntry& policy : policies()) {
    const Ran ran = run(2_MiB, std::string(policy.name), 6);
    if (HasFailure()) FAIL() << policy.name;
    EXPECT_LE(ran.peak, 2_MiB) << policy.name;
  }
}

// No plan brings an operand, so that there is none for places either.
TEST_F(GpuSession, OnDemandMovesNothingWhereAllFits) {
  const Ran ran = run(16_MiB, "on-demand", 10);
  EXPECT_EQ(ran.later.bytes_in.value + ran.later.bytes_out.value, 0u);
  EXPECT_THAT(ran.messages, ::testing::ElementsAre(::testing::StartsWith("all of a step fits")));
  const Ran half = run(Bytes{ran.peak.value / 2}, "on-demand", 10);
  EXPECT_GT(half.later.bytes_in.value, 0u);
  EXPECT_LE(half.later.bytes_in.value, (16_MiB).value) << "operands that had to leave, not all in each op";
}

// 4.3 MiB live, of which the GPU has 2 MiB and pinned memory 1 MiB: what is left lies on the disk.
TEST_F(GpuSession, ThreeLevelsHaveTheHostsNumbersByAPlan) {
  const Ran ran = run(2_MiB, "vedette", until_settled, "host:1MiB+nvme:" + ::testing::TempDir());
  EXPECT_EQ(ran.phase, "planned");
  EXPECT_THAT(ran.messages, ::testing::IsEmpty());
  EXPECT_LE(ran.peak, 2_MiB);
  EXPECT_GT(ran.later.bytes_out.value, 0u);
  EXPECT_GT(ran.later.far_bytes_in.value, 0u);
  EXPECT_GT(ran.later.moved_between_slow_tiers.value, 0u);
}

void expect_right_over_three_levels(const std::string& policy) {
  const Ran ran = run(2_MiB, policy, 5, "host:1MiB+nvme:" + ::testing::TempDir());
  EXPECT_LE(ran.peak, 2_MiB) << policy;
}
TEST_F(GpuSession, ThreeLevelsHaveTheHostsNumbersUnderPoliciesOfSeveralKinds) {
  for (const char* const policy : {"vedette", "sentinel", "capuchin", "on-demand", "deepum"}) {
    expect_right_over_three_levels(policy);
    if (HasFailure()) FAIL() << policy;
  }
}
TEST_F(GpuSession, ThreeLevelsHaveTheHostsNumbersUnderEveryPolicy) {
  for (const PolicyEntry& policy : policies()) {
    expect_right_over_three_levels(std::string(policy.name));
    if (HasFailure()) FAIL() << policy.name;
  }
}

// Pinned memory alone, with a limit: the host's numbers where it is enough, a sentence where it is not.
TEST_F(GpuSession, PinnedMemoryHasTheLimitThatItsSizeNames) {
  const Ran ran = run(2_MiB, "vedette", until_settled, "host:8MiB");
  EXPECT_EQ(ran.phase, "planned");
  EXPECT_THAT(ran.messages, ::testing::IsEmpty());
  EXPECT_GT(ran.later.bytes_out.value, 0u);
}

// Events around ops tell a plan's policy how long they take. A plan that is settled is told one step in 16.
TEST_F(GpuSession, AStepOfASettledPlanIsTimedOneTimeIn16) {
  WordsOnGpu gpu({.fast_memory = 16_MiB, .slow = "host", .policy = "vedette"});
  NetOnGpu net(gpu, layers, words);
  std::vector<unsigned> records;  // of a step
  for (std::uint32_t s = 0; s < until_settled + 64; ++s) {
    const unsigned before = control().calls()["cuEventRecord"];
    net.step(s);
    records.push_back(control().calls()["cuEventRecord"] - before);
    gpu.stream.synchronize().value();
  }
  const std::vector<unsigned> last(records.end() - 32, records.end());
  const unsigned most = *std::max_element(last.begin(), last.end()),
                 least = *std::min_element(last.begin(), last.end());
  EXPECT_EQ(std::count(last.begin(), last.end(), least), 30);
  EXPECT_EQ(std::count(last.begin(), last.end(), most), 2);
  std::printf("events of a step: %u where it is timed, else %u\n", most, least);
  EXPECT_LT(3 * least, 2 * most);
  net.expect_right();
}

// Its first step was not timed, having begun as one of the settled plan's.
TEST_F(GpuSession, AnotherStepAfterASettledPlanIsPlannedAndTimed) {
  WordsOnGpu gpu({.fast_memory = 2_MiB, .slow = "host", .policy = "vedette"});
  NetOnGpu net(gpu, layers, words);
  std::uint32_t s = 0;
  const auto events = [&] {
    const unsigned before = control().calls()["cuEventRecord"];
    net.step(s++);
    gpu.stream.synchronize().value();
    return control().calls()["cuEventRecord"] - before;
  };
  while (s < until_settled + 40) events();
  const unsigned settled = std::min(events(), events());
  net.in_the_middle = [&](std::vector<NetOnGpu::Tensor>& activations) {
    gpu.op("more", activations.back(), {&activations.front()}, 7u);
  };
  for (int i = 0; i < 3; ++i) events();
  for (int i = 0; i < 8; ++i) EXPECT_GT(events(), settled * 3 / 2);
  EXPECT_EQ(gpu.session->phase(), "planned");
  net.expect_right();
}

class NoProgram final : public GpuProgram {
  void* current_stream() noexcept override { return nullptr; }
  void moved(const void*, DeviceAddress) noexcept override {}
};

TEST_F(GpuSession, AGpuHasTheNamesThatLibtorchGivesIt) {
  NoProgram program;
  for (const char* const name : {"gpu:0", "cuda:0", "cuda"}) {
    const auto opened = Session::open({.fast_memory = 2_MiB, .fast = name, .gpu = &program});
    ASSERT_TRUE(opened) << name << ": " << opened.error().message;
  }
  const auto refused = Session::open({.fast_memory = 2_MiB, .fast = "cuda:x", .gpu = &program});
  EXPECT_EQ(refused.error().message,
            "fast memory 'gpu:x' is unknown; use dram, numa:N with the number of a NUMA node, or gpu:N with the number "
            "of a GPU");
}

TEST_F(GpuSession, ASlowTierThatIsNotThereIsASentence) {
  NoProgram program;
  for (const char* const slow : {"numa:1", "host:12", "host:", "host:1MiB+nvme:/no/such/folder"}) {
    const auto refused = Session::open({.fast_memory = 2_MiB, .fast = "gpu:0", .gpu = &program, .slow = slow});
    ASSERT_FALSE(refused) << slow;
    EXPECT_THAT(refused.error().message, ::testing::HasSubstr(";")) << slow;
  }
}

// What gives something back has no receiver for an error.
bool gives_back(const std::string& call) {
  for (const char* const word : {"Destroy", "Release", "Unmap", "Unregister", "Free"}) {
    if (call.find(word) != call.npos) return true;
  }
  return false;
}

TEST_F(GpuSession, OpensOrSaysWhyNotWhereACallOfTheDriverFails) {
  NoProgram program;
  const auto refusal = [&] {
    const auto opened = Session::open({.fast_memory = 2_MiB, .fast = "gpu:0", .gpu = &program});
    return opened ? std::string() : opened.error().message;
  };
  auto calls = control().calls();
  ASSERT_EQ(refusal(), "");
  int tried = 0, refused = 0;
  for (const auto& [call, count] : control().calls()) {
    if (gives_back(call)) continue;
    for (unsigned nth = 1; nth <= count - calls[call]; ++nth, ++tried) {
      control().fail(call, nth, 999);
      const std::string said = refusal();
      control().fail_none();
      if (said.empty()) continue;
      EXPECT_THAT(said, ::testing::HasSubstr("; ")) << call << ", call " << nth;
      ++refused;
    }
  }
  std::printf("%d calls failed, %d of them refused\n", tried, refused);
  EXPECT_GT(refused, 20);
}

// A guard an epoch, for ever: what has ended gives back its place among the sessions, and 64 GiB of addresses.
TEST_F(GpuSession, AProcessOpensAnyNumberOfThemOneAfterTheOther) {
  NoProgram program;
  constexpr int count = 300, that_live_on = 3;
  const auto open = [&] {
    return Session::open({.fast_memory = 1_MiB, .fast = "gpu:0", .gpu = &program, .policy = "on-demand"});
  };
  std::vector<std::byte*> living;
  for (int i = 0; i < count; ++i) {
    const auto opened = open();
    ASSERT_TRUE(opened) << i << ": " << opened.error().message;
    const auto memory = (*opened)->allocate({.bytes = 64_KiB});
    ASSERT_TRUE(memory) << i << ": " << memory.error().message;
    ASSERT_TRUE(Session::owns(*memory));
    if (i % (count / that_live_on) == 0) {
      living.push_back(*memory);
    } else {
      Session::release(*memory);
    }
  }
  for (std::byte* const each : living) {
    EXPECT_TRUE(Session::owns(each));
    Session::release(each);
  }
  ASSERT_TRUE(open());
  for (std::byte* const each : living) EXPECT_FALSE(Session::owns(each)) << "other memory may lie there";
  EXPECT_THAT(control().leaks(), ::testing::IsEmpty());
}

using Tensor = WordsOnGpu::Tensor;

// Steps that only read 3 MiB of tensors in 2 MiB: what comes back leaves again without a copy, by the plan.
class OnlyReading {
 public:
  OnlyReading() {
    for (std::uint32_t i = 0; i < 12; ++i) {
      tensors.push_back(gpu.make(words, true));
      gpu.op("init", tensors.back(), {}, i);
    }
  }
  // `changed`: is written in the middle, whichever it is by the same op.
  void step(std::optional<std::size_t> changed = {}) {
    const auto scope = gpu.session->step();
    for (const Tensor& each : tensors) {
      if (changed && &each == &tensors[8]) gpu.op("write", tensors[*changed], {}, 1u);
      Tensor sum = gpu.make(words / 4);
      gpu.op("read", sum, {&each}, 1u);
      gpu.drop(sum);
    }
  }
  void expect_right() {
    for (std::size_t i = 0; i < tensors.size(); ++i) gpu.expect_right(tensors[i], "tensor " + std::to_string(i));
  }
  WordsOnGpu gpu{{.fast_memory = 2_MiB, .policy = "vedette"}};
  std::vector<Tensor> tensors;
};

TEST_F(GpuSession, WhatIsWrittenBetweenStepsIsKeptByAPlanThatOnlyReads) {
  OnlyReading program;
  for (std::uint32_t s = 0; s < 10; ++s) {
    program.step();
    for (Tensor& each : program.tensors) program.gpu.op("write", each, {}, s);
  }
  EXPECT_GT(program.gpu.session->counters().bytes_dropped.value, 0u) << "nothing left without a copy";
  EXPECT_EQ(program.gpu.session->phase(), "planned");
  program.expect_right();
}

// Steps are told apart by kinds and sizes of their ops: an expert, or a layer that is drawn, is not the plan's.
TEST_F(GpuSession, WhatAnOpWritesInsteadOfThePlansTensorIsKept) {
  OnlyReading program;
  for (std::size_t s = 0; s < 36; ++s) program.step(s * 5 % 12);
  EXPECT_GT(program.gpu.session->counters().bytes_dropped.value, 0u) << "nothing left without a copy";
  EXPECT_EQ(program.gpu.session->phase(), "planned");
  program.expect_right();
}

TEST_F(GpuSession, WhatIsWrittenWhileItIsHeldIsKept) {
  OnlyReading program;
  for (std::uint32_t s = 0; s < 10; ++s) {
    program.step();
    for (Tensor& each : program.tensors) {
      const auto held = program.gpu.session->resident(each.name);
      launch_fill(program.gpu.stream.handle(), program.gpu.session->gpu()->address(each.name), words, s);
      std::fill(each.words.begin(), each.words.end(), s);
    }
  }
  EXPECT_GT(program.gpu.session->counters().bytes_dropped.value, 0u) << "nothing left without a copy";
  program.expect_right();
}

}  // namespace
}  // namespace vedette::testing::gpu_session_test
