// Steps that never repeat: sizes vary, stretches are inserted or missing. They expect what followed in an earlier step
// that was like them, and end with the bytes of a program that has plenty of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <thread>

#include "session/loop.h"

namespace vedette::foreseen_test {
namespace {

using testing::Block;
using testing::open_session;

constexpr std::size_t chunk = 64 << 10;

// Layers with weights and moments; each step has another batch, and maybe other ops.
class Varying {
 public:
  Varying(Session& session, std::size_t layers, std::size_t chunks) : session_(session) {
    for (std::size_t l = 0; l < layers; ++l) {
      weights_.emplace_back(session, chunks * chunk, true);
      moments_.emplace_back(session, chunks * chunk, true);
      weights_[l].fill(l);
      moments_[l].fill(l + 50);
    }
  }

  struct Step {
    std::size_t batch = chunk;                   // bytes of an activation
    std::vector<bool> leave_out = {}, log = {};  // by layer
    bool normalize = false;                      // uses all weights and moments at once
  };
  std::uint64_t step(const Step& what) {
    const auto scope = session_.step();
    std::vector<Block> activations;
    activations.emplace_back(session_, what.batch);
    activations[0].fill(what.batch);
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (l < what.leave_out.size() && what.leave_out[l]) continue;
      activations.push_back(combine("forward", activations.back(), weights_[l], what.batch));
      if (l < what.log.size() && what.log[l]) look(activations.back());
    }
    while (activations.size() > 1) {
      Block last = std::move(activations.back());
      activations.pop_back();
      Block mixed = combine("backward", last, activations.back(), what.batch);
      result_ = result_ * 31 + mixed[mixed.count() / 2];
    }
    for (std::size_t l = 0; l < weights_.size(); ++l) update(weights_[l], moments_[l]);
    if (what.normalize) normalize();
    return result_;
  }
  // One op that uses all there is.
  void normalize() {
    std::vector<const void*> reads;
    for (const Block& w : weights_) reads.push_back(w.address());
    for (const Block& m : moments_) reads.push_back(m.address());
    const auto op = session_.op("normalize", reads, {});
    for (const Block& w : weights_) result_ += w.sum();
    for (const Block& m : moments_) result_ += m.sum();
  }
  std::uint64_t state() const {
    std::uint64_t all = result_;
    for (const Block& w : weights_) all = all * 31 + w.sum();
    for (const Block& m : moments_) all = all * 31 + m.sum();
    return all;
  }
  const Block& weight(std::size_t l) const { return weights_[l]; }

 private:
  Block combine(std::string_view name, const Block& a, const Block& b, std::size_t bytes) {
    const void* reads[] = {a.address(), b.address()};
    const auto op = session_.op(name, reads, {});
    Block out(session_, bytes);
    for (std::size_t i = 0; i < out.count(); ++i) out[i] = a[i % a.count()] * 3 + b[i % b.count()];
    return out;
  }
  void look(const Block& a) {
    const void* reads[] = {a.address()};
    const auto op = session_.op("look", reads, {});
    result_ += a[0];
  }
  void update(Block& w, Block& m) {
    const void* writes[] = {w.address(), m.address()};
    const auto op = session_.op("update", {}, writes);
    for (std::size_t i = 0; i < w.count(); ++i) m[i] = m[i] * 5 + w[i], w[i] -= m[i] + result_;
  }

  Session& session_;
  std::vector<Block> weights_, moments_;
  std::uint64_t result_ = 1;
};

struct Ended {
  std::uint64_t state = 0;
  Counters counters;
  std::string phase;
};

Ended run_batches(Bytes budget, const std::string& policy) {
  const auto session = open_session(budget, "host", policy);
  Varying program(*session, 8, 4);
  std::mt19937 random(5);
  for (int s = 0; s < 30; ++s) program.step({.batch = (2 + random() % 200) * chunk / 64});
  return {.state = program.state(), .counters = session->counters(), .phase = std::string(session->phase())};
}

TEST(Foreseen, OtherBatchesMoveFewerBytesThanOnDemand) {
  const Bytes half{40 * chunk};  // weights and moments are 64 chunks
  const Ended plenty = run_batches(64_MiB, "vedette"), foreseen = run_batches(half, "vedette"),
              on_demand = run_batches(half, "on-demand");
  EXPECT_EQ(foreseen.state, plenty.state);
  EXPECT_EQ(on_demand.state, plenty.state);
  EXPECT_LE(foreseen.counters.faults, on_demand.counters.faults);
  EXPECT_LT(foreseen.counters.bytes_in.value * 10, on_demand.counters.bytes_in.value * 9);
  EXPECT_THAT(foreseen.phase, ::testing::AnyOf("foreseen", "planned")) << "as its ops are quick, or slow";
  EXPECT_EQ(on_demand.phase, "profiling");
}

class Plans final : public Observer {
 public:
  void planned(std::uint64_t, std::uint64_t, const Trace&, const Plan& plan) override {
    searched += plan.reasons.empty() || !plan.reasons[0].starts_with("carried over") ? 1 : 0;
  }
  int searched = 0;
};

// The first step's log has operands by pages, which tell nothing of other sizes; two more serve all others.
TEST(Foreseen, OfSizesThatComeOnceThreeArePlannedBySearch) {
  Plans plans;
  const auto session = open_session({40 * chunk}, "host", "vedette", {chunk}, &plans);
  Varying program(*session, 8, 4);
  for (std::size_t s = 0; s < 16; ++s) program.step({.batch = (2 + s) * chunk / 4});
  EXPECT_LE(plans.searched, 3);
}

struct Normalized {
  std::uint64_t state = 0;
  std::uint64_t stalls = 0;  // of the last ten steps
  std::string phase;
  std::vector<std::string> messages;
};

Normalized run_normalized(Bytes budget, const std::string& policy) {
  Normalized ended;
  const auto session = open_session(budget, "host", policy, {chunk}, nullptr, &ended.messages);
  Varying program(*session, 8, 4);
  for (int s = 0; s < 10; ++s) program.step({.normalize = true});
  const std::uint64_t before = session->counters().stall_count;
  for (int s = 0; s < 10; ++s) {
    program.step({.normalize = true});
    ended.phase = session->phase();
  }
  ended.stalls = session->counters().stall_count - before;
  ended.state = program.state();
  return ended;
}

TEST(Session, OneOpThatIsTooLargeCostsTheOthersNoPlan) {
  const Normalized plenty = run_normalized(64_MiB, "vedette"), tight = run_normalized({40 * chunk}, "vedette"),
                   on_demand = run_normalized({40 * chunk}, "on-demand");
  EXPECT_EQ(tight.state, plenty.state);
  EXPECT_EQ(on_demand.state, plenty.state);
  EXPECT_EQ(tight.phase, "planned");
  EXPECT_THAT(tight.messages, ::testing::ElementsAre(::testing::HasSubstr("op 'normalize' needs")));
  EXPECT_LT(tight.stalls, on_demand.stalls);
}

// A program that never does the same twice, from a printed seed: layers are left out, looked at, and steps end early.
std::uint64_t run_at_random(std::uint64_t seed, Bytes budget, std::optional<Counters>* counters) {
  const auto session = open_session(budget, "host", "vedette");
  std::mt19937_64 random(seed);
  Varying program(*session, 6, 1 + random() % 5);
  std::vector<std::uint64_t> seen;
  for (int s = 0; s < 40; ++s) {
    Varying::Step step{.batch = (1 + random() % 300) * chunk / 100};
    for (int l = 0; l < 6; ++l) {
      step.leave_out.push_back(random() % 8 == 0);
      step.log.push_back(random() % 6 == 0);
    }
    program.step(step);
    if (random() % 10 == 0) {  // a step of another kind, of which nothing is known
      const auto scope = session->step();
      const void* reads[] = {program.weight(2).address()};
      const auto op = session->op("evaluate", reads, {});
      seen.push_back(program.weight(2).sum());
    }
    if (random() % 10 == 0) {  // between steps, without an announcement, by another thread
      std::thread([&] { seen.push_back(program.weight(random() % 6).sum()); }).join();
    }
  }
  if (counters != nullptr) *counters = session->counters();
  return std::accumulate(seen.begin(), seen.end(), program.state());
}

TEST(Foreseen, AnythingGoesAndTheBytesAreRight) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::optional<Counters> tight;
    EXPECT_EQ(run_at_random(seed, {24 * chunk}, &tight), run_at_random(seed, 64_MiB, nullptr));
    EXPECT_LE(tight->resident_max_bytes.value, 24 * chunk);
  }
}

}  // namespace
}  // namespace vedette::foreseen_test
