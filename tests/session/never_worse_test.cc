// Sequences of steps from printed seeds: phases that change, noise, drift, loops that vary. What an earlier step lets
// expect costs little more transfers than expecting nothing, where least recently used memory leaves, and less in all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "session/loop.h"

namespace vedette {
namespace {

using testing::Block;
using testing::open_session;

constexpr std::size_t chunk = 64 << 10;

// One program, drawn from a seed; the same ops whatever the budget and the policy are.
class Drawn {
 public:
  Drawn(Session& session, std::uint64_t seed) : session_(session), random_(seed) {
    const std::size_t count = 4 + below(7);
    for (std::size_t l = 0; l < count; ++l) {
      weights_.emplace_back(session, (1 + below(4)) * chunk, true);
      weights_.back().fill(l);
      session.label(weights_.back().address(), "weight", TensorKind::weight);
      if (below(2) == 0) continue;
      moments_.emplace_back(l, Block(session, weights_.back().count() * 8, true));
      moments_.back().second.fill(l + 50);
    }
    noise_ = below(4) == 0 ? 0 : 4 + below(30);
    drift_ = below(3) == 0 ? below(chunk / 8) : 0;
    batch_ = chunk / 8 + below(2 * chunk);
    next_phase();
  }

  void step(std::size_t number) {
    if (number % 16 == 15 && below(2) == 0) next_phase();
    const auto scope = session_.step();
    std::vector<Block> made;
    made.emplace_back(session_, std::max<std::size_t>(8, varies_ ? batch_ / 2 + below(batch_) : batch_));
    made.back().fill(number);
    const std::uint64_t times = loops_ ? 1 + below(3) : 1;
    for (std::uint64_t again = 0; again < times; ++again)
      for (const std::size_t l : order_) forward(made, l);
    if (trains_) {
      while (made.size() > 1) backward(made);
      for (const std::size_t l : order_)
        if (!noisy()) update(weights_[l]);
      for (auto& [l, moment] : moments_) update(moment);
    }
    result_ = result_ * 31 + made.back()[made.back().count() / 2];
    batch_ += drift_ / 8 * 8;
    if (batch_ > 6 * chunk) batch_ = chunk;
  }
  std::uint64_t state() const {
    std::uint64_t all = result_;
    for (const Block& w : weights_) all = all * 31 + w.sum();
    for (const auto& each : moments_) all = all * 31 + each.second.sum();
    return all;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool noisy() { return noise_ != 0 && below(noise_) == 0; }
  void next_phase() {
    order_.clear();
    const std::size_t ops = 3 + below(9);
    for (std::size_t i = 0; i < ops; ++i)
      order_.push_back(below(3) == 0 ? below(weights_.size()) : i % weights_.size());
    trains_ = below(3) != 0;
    loops_ = below(2) == 0;
    varies_ = below(2) == 0;
  }
  void forward(std::vector<Block>& made, std::size_t l) {
    if (noisy()) return;
    if (noisy()) {
      const void* reads[] = {made.back().address()};
      const auto op = session_.op("look", reads, {});
      result_ += made.back()[0];
    }
    const void* reads[] = {made.back().address(), weights_[l].address()};
    const auto op = session_.op("forward", reads, {});
    Block out(session_, made.front().count() * 8);
    for (std::size_t i = 0; i < out.count(); ++i)
      out[i] = made.back()[i % made.back().count()] * 3 + weights_[l][i % weights_[l].count()];
    if (!trains_) made.pop_back();
    made.push_back(std::move(out));
  }
  void backward(std::vector<Block>& made) {
    Block last = std::move(made.back());
    made.pop_back();
    const void *reads[] = {last.address()}, *writes[] = {made.back().address()};
    const auto op = session_.op("backward", reads, writes);
    for (std::size_t i = 0; i < made.back().count(); ++i) made.back()[i] += last[i % last.count()] * 7;
  }
  void update(Block& w) {
    const void* writes[] = {w.address()};
    const auto op = session_.op("update", {}, writes);
    for (std::size_t i = 0; i < w.count(); ++i) w[i] = w[i] * 5 + result_;
  }

  Session& session_;
  std::mt19937_64 random_;
  std::vector<Block> weights_;
  std::vector<std::pair<std::size_t, Block>> moments_;
  std::vector<std::size_t> order_;
  std::uint64_t noise_ = 0, drift_ = 0, batch_ = 0, result_ = 1;
  bool trains_ = true, loops_ = false, varies_ = false;
};

struct Ended {
  std::uint64_t state = 0;
  Counters counters;
  std::uint64_t moved() const { return counters.bytes_in + counters.bytes_out; }
};

Ended run(std::uint64_t seed, Bytes budget, const std::string& policy) {
  const auto session = open_session(budget, "host", policy);
  Drawn program(*session, seed);
  for (std::size_t s = 0; s < 48; ++s) program.step(s);
  return {.state = program.state(), .counters = session->counters()};
}

// Threads race, so that two runs of one program differ by up to a twelfth: a program is judged by the median of five
// where its first run is over, and by a tenth. That no program moves over 2 % more is not shown.
TEST(NeverWorse, WhatIsExpectedMovesLittleMoreThanLeastRecentlyUsedAndLessInAll) {
  std::uint64_t expected_in_all = 0, lru_in_all = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Bytes budget{(12 + seed % 4 * 6) * chunk};
    const Ended plenty = run(seed, 64_MiB, "on-demand"), lru = run(seed, budget, "on-demand");
    Ended expected = run(seed, budget, "vedette");
    EXPECT_EQ(expected.state, plenty.state);
    EXPECT_EQ(lru.state, plenty.state);
    const std::uint64_t most = lru.moved() + lru.moved() / 10 + 2 * budget.value;
    if (expected.moved() > most) {
      std::array<Ended, 5> runs = {expected};
      std::generate(runs.begin() + 1, runs.end(), [&] { return run(seed, budget, "vedette"); });
      std::sort(runs.begin(), runs.end(), [](const Ended& a, const Ended& b) { return a.moved() < b.moved(); });
      expected = runs[2];
    }
    EXPECT_LE(expected.moved(), most);
    expected_in_all += expected.moved();
    lru_in_all += lru.moved();
  }
  RecordProperty("percent_of_least_recently_used", static_cast<int>(expected_in_all * 100 / lru_in_all));
  EXPECT_LT(expected_in_all * 100, lru_in_all * 95);
}

}  // namespace
}  // namespace vedette
