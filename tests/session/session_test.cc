// Whole sessions without libtorch: a pretended training loop whose every byte is known, in budgets from plenty to tiny.
#include "vedette/session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace vedette {
namespace {

constexpr Bytes chunk = 64_KiB;

struct Block {                       // 64-bit words with a known pattern
  std::uint64_t* words = nullptr;
  std::size_t count = 0;
  const void* address() const { return words; }
};

Block make(Session& session, std::size_t bytes, bool persistent = false) {
  auto memory = session.allocate({.bytes = {bytes}, .alignment = {64}, .name = {}, .kind = TensorKind::activation, .persistent = persistent});
  return {reinterpret_cast<std::uint64_t*>(std::move(memory).value()), bytes / 8};
}
void drop(Block& block) { Session::release(reinterpret_cast<std::byte*>(std::exchange(block.words, nullptr))); }

std::uint64_t sum(const Block& block) { return std::accumulate(block.words, block.words + block.count, std::uint64_t{0}); }

// A chain of layers: forward makes activations, backward makes gradients out of them, an optimizer changes weights. Integer arithmetic, so
// that any lost or torn byte changes the result.
class Loop {
 public:
  Loop(Session& session, std::size_t layers, std::size_t bytes) : session_(session), bytes_(bytes) {
    for (std::size_t l = 0; l < layers; ++l) {
      weights_.push_back(make(session_, bytes_, true));
      moments_.push_back(make(session_, bytes_, true));
      for (std::size_t i = 0; i < weights_[l].count; ++i) weights_[l].words[i] = l + i, moments_[l].words[i] = i;
    }
  }
  ~Loop() {
    for (Block& b : weights_) drop(b);
    for (Block& b : moments_) drop(b);
  }
  std::uint64_t step(std::uint64_t input) {
    auto scope = session_.step();
    std::vector<Block> activations{make(session_, bytes_)};
    for (std::size_t i = 0; i < activations[0].count; ++i) activations[0].words[i] = input + i;
    for (const Block& w : weights_) activations.push_back(combine("forward", activations.back(), w));
    Block gradient = combine("loss", activations.back(), activations.back());
    const std::uint64_t loss = sum(gradient);
    std::vector<Block> gradients;
    for (std::size_t l = weights_.size(); l-- > 0;) {
      gradients.push_back(combine("weight_gradient", gradient, activations[l]));
      Block next = combine("backward", gradient, weights_[l]);
      drop(gradient);
      gradient = next;
      drop(activations[l + 1]);
    }
    drop(activations[0]);
    drop(gradient);
    for (std::size_t l = 0; l < weights_.size(); ++l) update(weights_[l], moments_[l], gradients[weights_.size() - 1 - l]);
    for (Block& g : gradients) drop(g);
    return loss;
  }
  std::uint64_t state() const {
    std::uint64_t all = 0;
    for (const Block& b : weights_) all = all * 31 + sum(b);
    for (const Block& b : moments_) all = all * 31 + sum(b);
    return all;
  }

 private:
  Block combine(std::string_view name, const Block& a, const Block& b) {
    const void* reads[] = {a.address(), b.address()};
    auto op = session_.op(name, reads, {});
    Block out = make(session_, bytes_);
    for (std::size_t i = 0; i < out.count; ++i) out.words[i] = a.words[i] * 3 + b.words[out.count - 1 - i];
    return out;
  }
  void update(Block& w, Block& m, const Block& g) {
    const void* reads[] = {g.address()};
    const void* writes[] = {w.address(), m.address()};
    auto op = session_.op("update", reads, writes);
    for (std::size_t i = 0; i < w.count; ++i) m.words[i] = m.words[i] * 5 + g.words[i], w.words[i] -= m.words[i];
  }
  Session& session_;
  std::size_t bytes_;
  std::vector<Block> weights_, moments_;
};

struct Outcome {
  std::vector<std::uint64_t> losses;
  std::uint64_t state = 0;
  Counters counters;
  std::vector<std::string> messages;
  bool operator==(const Outcome& other) const { return losses == other.losses && state == other.state; }
};

Outcome run(Bytes budget, const std::string& slow, const std::string& policy, std::size_t layers = 8, std::size_t bytes = 300'000) {
  Outcome outcome;
  auto session = Session::open({.fast_memory = budget, .slow = slow, .policy = policy, .chunk = chunk,
                                .on_message = [&](std::string_view m) { outcome.messages.emplace_back(m); }})
                     .value();
  {
    Loop loop(*session, layers, bytes);
    for (std::uint64_t s = 0; s < 8; ++s) outcome.losses.push_back(loop.step(s));
    outcome.state = loop.state();
    outcome.counters = session->counters();
  }
  return outcome;
}

class SessionBudget : public testing::TestWithParam<std::tuple<int, std::string, std::string>> {};

TEST_P(SessionBudget, EndsWithTheSameBytesAsWithPlentyOfMemory) {
  const auto& [percent, slow, policy] = GetParam();
  const Outcome plenty = run(64_MiB, slow, policy);
  const Bytes budget{plenty.counters.peak_bytes * static_cast<std::uint64_t>(percent) / 100};
  const Outcome tight = run(budget, slow, policy);
  EXPECT_EQ(plenty, tight);
  EXPECT_LE(tight.counters.resident_max_bytes, budget.value);
  EXPECT_EQ(plenty.counters.bytes_in, 0u);
  if (percent <= 50) {
    EXPECT_GT(tight.counters.bytes_in, 0u);
  }
  for (const std::string& m : tight.messages) ADD_FAILURE() << m;
}
INSTANTIATE_TEST_SUITE_P(Budgets, SessionBudget,
                         testing::Combine(testing::Values(100, 60, 40, 25), testing::Values("host", "nvme:."), testing::Values("on-demand")));

TEST(Session, FinishesAnOpThatNeedsMoreThanTheBudgetAndSaysSoOnce) {
  const Outcome plenty = run(64_MiB, "host", "on-demand", 3, 400'000);
  const Outcome tiny = run(640_KiB, "host", "on-demand", 3, 400'000);  // an op needs 3 x 448 KiB
  EXPECT_EQ(plenty, tiny);
  EXPECT_FALSE(tiny.messages.empty());
  EXPECT_GT(tiny.counters.faults, 0u);
}

TEST(Session, ServesAnAccessThatNobodyAnnounced) {
  auto session = Session::open({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = chunk, .on_message = {}}).value();
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 40; ++b) {
    blocks.push_back(make(*session, 64 << 10));
    for (std::size_t i = 0; i < blocks[b].count; ++i) blocks[b].words[i] = b * 1000 + i;
  }
  for (std::uint64_t b = 0; b < 40; ++b)
    for (std::size_t i = 0; i < blocks[b].count; ++i) ASSERT_EQ(blocks[b].words[i], b * 1000 + i);
  EXPECT_GT(session->counters().faults, 0u);
  for (Block& b : blocks) drop(b);
}

TEST(Session, RefusesASecondOneWhileOneLives) {
  auto first = Session::open({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = chunk, .on_message = {}}).value();
  const auto second = Session::open({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = chunk, .on_message = {}});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("second session"), std::string::npos);
}

TEST(Session, LeavesMemoryValidAndPagedWhenItEnds) {
  auto session = Session::open({.fast_memory = 1_MiB, .slow = "host", .policy = "on-demand", .chunk = chunk, .on_message = {}}).value();
  std::vector<Block> blocks;
  for (std::uint64_t b = 0; b < 40; ++b) {
    blocks.push_back(make(*session, 64 << 10));
    std::fill_n(blocks[b].words, blocks[b].count, b);
  }
  session.reset();
  for (std::uint64_t b = 0; b < 40; ++b) EXPECT_EQ(sum(blocks[b]), b * blocks[b].count);
  for (Block& b : blocks) drop(b);
}

}  // namespace
}  // namespace vedette
