// The budget as the kernel counts it. Another process samples this one's resident memory all through a run. It never
// exceeds the figure before the session opened by more than the budget and a fixed overhead.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <span>

#include "session/kernel_memory.h"
#include "session/loop.h"

namespace vedette::budget_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;
using testing::resident_bytes;

constexpr Bytes overhead = 64_MiB;  // books, rings, stacks, slab: the README states it

struct Seen {  // shared with the sampler
  std::atomic<int> phase{0};
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> most[4] = {}, samples[4] = {};

  // What a phase leaves resident has been seen when it ends, however busy the machine is.
  void end_phase() const {
    constexpr std::uint64_t enough = 4;
    const std::atomic<std::uint64_t>& now = samples[static_cast<std::size_t>(phase)];
    for (const std::uint64_t before = now; now < before + enough;) ::usleep(200);
  }
  void begin(int next) {
    if (next == phase) return;
    end_phase();
    phase = next;
  }
};
constexpr const char* phase_names[] = {"opening", "warm-up", "profiling", "planned"};

// A process of its own, started while this one is still small: it neither shares the arena nor waits for this one's
// locks.
class Sampler {
 public:
  Sampler() {
    void* const memory = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    seen_ = new (memory) Seen;
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ != 0) return;
    while (!seen_->stop && ::getppid() == parent) {
      const int before = seen_->phase;
      const std::uint64_t now = resident_bytes(parent);
      const auto phase = static_cast<std::size_t>(before);
      if (now > seen_->most[phase]) seen_->most[phase] = now;
      ++seen_->samples[phase];
      ::usleep(500);  // each walks this process's page tables, which the session waits for
    }
    ::_exit(0);
  }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler() {
    seen_->stop = true;
    ::waitpid(child_, nullptr, 0);
    ::munmap(seen_, sizeof(Seen));
  }
  Seen& seen() { return *seen_; }

 private:
  Seen* seen_ = nullptr;
  pid_t child_ = 0;
};

struct Case {
  const char* policy;
  const char* slow;
  Bytes host;  // of the slow tiers, in memory
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.policy << " on " << c.slow; }
class Budget : public ::testing::TestWithParam<Case> {};

TEST_P(Budget, HoldsInEveryPhaseAsTheKernelCounts) {
  // weights, moments, activations and gradients: about 400 MB live at the peak
  constexpr std::size_t layers = 16, bytes = 8'000'000;
  constexpr Bytes budget = 96_MiB;
  Sampler sampler;
  Seen& seen = sampler.seen();
  const std::uint64_t before = resident_bytes(::getpid());
  ASSERT_GT(before, 0u) << "/proc/self/status cannot be read";
  {
    const auto session = open_session(budget, GetParam().slow, GetParam().policy, 2_MiB);
    Loop loop(*session, layers, bytes);
    for (std::uint64_t s = 0; s < 7; ++s) {
      seen.begin(s == 0 ? 1 : s == 1 ? 2 : 3);
      loop.step(s);
    }
    EXPECT_GE(session->counters().peak_bytes.value, 300u << 20);
    EXPECT_LE(budget.value * 100 / session->counters().peak_bytes.value, 27u);
    EXPECT_GT(session->counters().bytes_in.value, 0u);
    seen.end_phase();
  }
  for (std::size_t p = 0; p < 4; ++p) {
    const std::uint64_t most = seen.most[p], samples = seen.samples[p];
    const std::int64_t over =
        static_cast<std::int64_t>(most) - static_cast<std::int64_t>(before + budget.value + GetParam().host.value);
    std::printf("%-9s  %6lu samples, at most %5.1f MiB beyond the budget\n", phase_names[p], samples,
                static_cast<double>(over) / (1 << 20));
    EXPECT_LE(over, static_cast<std::int64_t>(overhead.value)) << phase_names[p];
  }
}
// Batches of ever new sizes, each with a profile, a plan and addresses of its own, where everything fits: what is held
// beside the budget does not grow with them.
TEST_P(Budget, HoldsOverStepsThatChange) {
  constexpr Bytes budget = 192_MiB;
  constexpr std::uint64_t steps = 48, sizes = 24, layers = 8;
  Sampler sampler;
  Seen& seen = sampler.seen();
  const std::uint64_t before = resident_bytes(::getpid());
  std::uint64_t peak = 0;
  {
    const auto session = open_session(budget, GetParam().slow, GetParam().policy, 2_MiB);
    std::vector<Block> weights;
    for (std::uint64_t l = 0; l < layers; ++l) weights.emplace_back(*session, 2'000'000, true);
    for (std::uint64_t s = 0; s < steps; ++s) {
      seen.begin(s == 0 ? 1 : s == 1 ? 2 : 3);
      const auto step = session->step();
      std::vector<Block> activations;
      for (std::uint64_t l = 0; l < layers; ++l) {
        const void* const reads[] = {weights[l].address()};
        const auto op = session->op("forward", reads, {});
        activations.emplace_back(*session, 400'000 * (1 + s * 5 % sizes));
        activations.back().fill(l);
        for (std::size_t small = 100; small < 20'000; small *= 2) Block(*session, small).fill(s);
      }
      for (std::uint64_t l = layers; l-- > 0;) {
        const void *const reads[] = {activations[l].address()}, *const writes[] = {weights[l].address()};
        const auto op = session->op("backward", reads, writes);
        weights[l].fill(s + activations[l].sum());
        activations.pop_back();
      }
    }
    peak = session->counters().peak_bytes.value;
    EXPECT_LE(session->planned_steps().size(), 10u);
    seen.end_phase();
  }
  EXPECT_LE(peak, budget.value) << "this is about what is beside it";
  for (const std::size_t p : {1u, 2u, 3u}) {
    const auto over = static_cast<std::int64_t>(seen.most[p]) -
                      static_cast<std::int64_t>(before + budget.value + GetParam().host.value);
    std::printf("%-9s  at most %5.1f MiB beyond the budget\n", phase_names[p], static_cast<double>(over) / (1 << 20));
    EXPECT_LE(over, static_cast<std::int64_t>(overhead.value)) << phase_names[p];
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, Budget,
                         ::testing::Values(Case{"sentinel", "nvme:.", {}}, Case{"vedette", "nvme:.", {}},
                                           Case{"vedette", "host:96MiB+nvme:.", 96_MiB}));

// What books take grows with steps, and no more than docs/environments.md says: by 768 bytes for each op and each
// tensor of the sequences that have a plan, beyond 20,000 of them.
std::int64_t promised(std::uint64_t ops_and_tensors) {
  constexpr std::uint64_t free = 20'000, each = 768;
  return static_cast<std::int64_t>(overhead.value + (std::max(ops_and_tensors, free) - free) * each);
}

// Runs `program` with a session of `budget`, and returns what it held beyond that at most.
std::int64_t beyond(Bytes budget, const std::function<void(Session&)>& program) {
  Sampler sampler;
  const std::uint64_t before = resident_bytes(::getpid());
  const auto session = open_session(budget, "nvme:.", "vedette");
  program(*session);
  sampler.seen().end_phase();
  const auto most = static_cast<std::int64_t>(sampler.seen().most[0]);
  const std::int64_t over = most - static_cast<std::int64_t>(before + budget.value);
  std::printf("at most %.1f MiB beyond the budget\n", static_cast<double>(over) / (1 << 20));
  return over;
}

void run_long_step(Session& session, std::span<const Block> weights, std::uint64_t ops, bool births) {
  const auto step = session.step();
  for (std::uint64_t i = 0; i < ops; ++i) {
    const void* const reads[] = {weights[i % weights.size()].address(), weights[i * 7 % weights.size()].address()};
    const void* const writes[] = {weights[i * 3 % weights.size()].address()};
    const auto op = session.op(i % 2 == 0 ? "add" : "convolution_backward", reads, writes);
    if (births) Block(session, 100'000)[0] = i;
  }
}

std::vector<Block> some_weights(Session& session) {
  std::vector<Block> weights;
  for (int w = 0; w < 16; ++w) weights.emplace_back(session, 200'000, true);
  return weights;
}

TEST(Books, OfALongStepTakeWhatIsPromised) {
  constexpr std::uint64_t ops = 60'000;
  const std::int64_t over = beyond(16_MiB, [](Session& session) {
    const auto weights = some_weights(session);
    for (int s = 0; s < 5; ++s) run_long_step(session, weights, ops, true);
  });
  EXPECT_LE(over, promised(2 * ops));
}

TEST(Books, OfManyLongSequencesLetOldPlansGo) {
  constexpr std::uint64_t ops = 40'000, sequences = 6;
  const std::int64_t over = beyond(16_MiB, [](Session& session) {
    const auto weights = some_weights(session);
    for (std::uint64_t s = 0; s < sequences; ++s) run_long_step(session, weights, ops + s, false);
    EXPECT_EQ(session.planned_steps().size(), 2u);
  });
  EXPECT_LE(over, promised(3 * ops)) << "two with a plan, and one that is learned";
}

TEST(Books, OfAMillionSmallTensorsTakeNextToNothing) {
  std::vector<std::byte*> tensors(1'000'000);
  for (std::byte*& tensor : tensors) tensor = nullptr;
  const std::int64_t over = beyond(16_MiB, [&](Session& session) {
    for (std::byte*& tensor : tensors) tensor = session.allocate({.bytes = {64}}).value();
    for (std::byte*& tensor : tensors) Session::release(tensor);
  });
  EXPECT_LE(over, promised(0) / 2);
}

TEST(Books, OfManyTensorsTakeWhatIsPromised) {
  constexpr std::uint64_t count = 60'000;
  const std::int64_t over = beyond(16_MiB, [](Session& session) {
    std::vector<Block> tensors;
    for (std::uint64_t t = 0; t < count; ++t) tensors.emplace_back(session, 4'000, true);
    for (int s = 0; s < 4; ++s) run_long_step(session, {tensors.data(), 16}, 100, true);
  });
  EXPECT_LE(over, promised(count));
}

}  // namespace
}  // namespace vedette::budget_test
