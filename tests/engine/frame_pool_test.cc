// The pool of frames alone: random events from printed seeds beside a model that is a set a state.
#include "engine/frame_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace vedette::frame_pool_test {
namespace {

class Driver {
 public:
  explicit Driver(std::uint64_t seed) : random_(seed), frames_(1 + below(20)), pool_(frames_) {
    const std::uint32_t made = below(frames_ + 1);
    pool_.begin_with(made);
    for (std::uint32_t f = 0; f < frames_; ++f) (f < made ? ready_ : unmade_).insert(f);
  }

  void step() {
    if (below(12) == 0) return want();
    switch (below(10)) {
      case 0:
        return take();
      case 1:
        return give();
      case 2:
        return start_making();
      case 3:
        return end_making(true);
      case 4:
        if (below(10) == 0) end_making(false);
        return;
      case 5:
        return start_unmaking();
      case 6:
        return end_unmaking();
      case 7:
        if (const auto frame = pool_.unmake()) {
          EXPECT_EQ(ready_.erase(frame->value), 1u);
          unmade_.insert(frame->value);
        } else {
          EXPECT_TRUE(ready_.empty());
        }
        return;
      default:
        if (below(10) == 0) retire();
    }
  }

  void check() const {
    EXPECT_EQ(pool_.ready(), ready_.size());
    EXPECT_EQ(pool_.unmade(), unmade_.size());
    std::uint32_t making = 0;
    for (const FramePool::Run run : making_) making += run.count;
    for (const auto& frames : going_) making += static_cast<std::uint32_t>(frames.size());
    EXPECT_EQ(pool_.making(), making);
    EXPECT_EQ(pool_.size(), ready_.size() + unmade_.size() + making);
    EXPECT_EQ(pool_.frames(), frames_);
    EXPECT_EQ(pool_.frames(), pool_.size() + out_.size());
    for (const std::uint32_t f : ready_) EXPECT_TRUE(pool_.has_memory({f}));
    for (const std::uint32_t f : out_) EXPECT_TRUE(pool_.has_memory({f}));
    for (const std::uint32_t f : unmade_) EXPECT_FALSE(pool_.has_memory({f}));
    for (const auto& frames : going_)
      for (const FrameIndex f : frames) EXPECT_FALSE(pool_.has_memory(f));
  }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void take() {
    const auto frame = pool_.take();
    EXPECT_EQ(frame.has_value(), !ready_.empty());
    if (!frame) return;
    EXPECT_EQ(ready_.erase(frame->value), 1u);
    out_.insert(frame->value);
  }
  void give() {
    if (out_.empty()) return;
    const std::uint32_t frame = *out_.begin();
    out_.erase(frame);
    pool_.give({frame});
    ready_.insert(frame);
  }
  void start_making() {
    const std::uint32_t most = 1 + below(5);
    const FramePool::Run run = pool_.start_making(most);
    EXPECT_LE(run.count, most);
    EXPECT_EQ(run.count == 0, unmade_.empty());
    for (std::uint32_t k = 0; k < run.count; ++k) EXPECT_EQ(unmade_.erase(run.first.value + k), 1u);
    if (run.count > 0) making_.push_back(run);
  }
  void end_making(bool well) {
    if (making_.empty()) return;
    const FramePool::Run run = making_.back();
    making_.pop_back();
    if (well) {
      pool_.made(run);
      for (std::uint32_t k = 0; k < run.count; ++k) ready_.insert(run.first.value + k);
    } else {
      pool_.not_made(run);
      frames_ -= run.count + static_cast<std::uint32_t>(unmade_.size());
      unmade_.clear();
    }
  }
  void start_unmaking() {
    const std::uint32_t most = below(5);
    const std::vector<FrameIndex> going = pool_.start_unmaking(most);
    EXPECT_EQ(going.size(), std::min<std::size_t>(most, ready_.size()));
    for (const FrameIndex f : going) EXPECT_EQ(ready_.erase(f.value), 1u);
    if (!going.empty()) going_.push_back(going);
  }
  void end_unmaking() {
    if (going_.empty()) return;
    for (const FrameIndex f : going_.back()) unmade_.insert(f.value);
    pool_.gone(going_.back());
    going_.pop_back();
  }
  // Frames that come are those that were retired, or new ones; which, the pool says by its runs.
  void want() {
    const std::uint32_t frames = below(30);
    pool_.want(frames);
    EXPECT_EQ(pool_.wanted(), frames);
    const std::uint32_t more = frames - std::min(frames, frames_);
    frames_ += more;
    FramePool copy = pool_;
    std::set<std::uint32_t> unmade;
    for (FramePool::Run run = copy.start_making(1); run.count > 0; run = copy.start_making(1)) {
      EXPECT_TRUE(unmade.insert(run.first.value).second);
      EXPECT_LT(run.first.value, pool_.ever());
    }
    EXPECT_EQ(unmade.size(), unmade_.size() + more);
    for (const std::uint32_t f : unmade_) EXPECT_TRUE(unmade.contains(f));
    for (const std::uint32_t f : out_) EXPECT_FALSE(unmade.contains(f));
    unmade_ = unmade;
  }
  void retire() {
    EXPECT_EQ(pool_.retire(), !unmade_.empty());
    if (unmade_.empty()) return;
    --frames_;
    // The pool does not say which one it was: the one that no run finds any more.
    FramePool copy = pool_;
    std::set<std::uint32_t> left;
    for (FramePool::Run run = copy.start_making(1); run.count > 0; run = copy.start_making(1))
      left.insert(run.first.value);
    EXPECT_EQ(left.size() + 1, unmade_.size());
    unmade_ = left;
  }

  std::mt19937_64 random_;
  std::uint32_t frames_;
  FramePool pool_;
  std::set<std::uint32_t> ready_, unmade_, out_;
  std::vector<FramePool::Run> making_;
  std::vector<std::vector<FrameIndex>> going_;
};

TEST(FramePool, HoldsThroughRandomEvents) {
  for (std::uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Driver driver(seed);
    for (int i = 0; i < 300 && !HasFailure(); ++i) {
      driver.step();
      driver.check();
    }
  }
}

TEST(FramePool, MakesTheLowestFramesFirstAndInRuns) {
  FramePool pool(10);
  pool.begin_with(3);
  EXPECT_EQ(pool.take(), FrameIndex{0});
  const FramePool::Run first = pool.start_making(4), rest = pool.start_making(4);
  EXPECT_EQ(first.first, FrameIndex{3});
  EXPECT_EQ(first.count, 4u);
  EXPECT_EQ(rest.first, FrameIndex{7});
  EXPECT_EQ(rest.count, 3u);
  EXPECT_EQ(pool.start_making(4).count, 0u);
}

TEST(FramePool, MakesWhatWasGivenBackInRuns) {
  FramePool pool(10);
  pool.begin_with(8);
  const std::vector<FrameIndex> some = pool.start_unmaking(2), others = pool.start_unmaking(3);
  pool.gone(others);
  pool.gone(some);
  EXPECT_EQ(pool.ready(), 3u);
  const FramePool::Run run = pool.start_making(10);
  EXPECT_EQ(run.first, FrameIndex{0});
  EXPECT_EQ(run.count, 5u);
  EXPECT_EQ(pool.start_making(10).first, FrameIndex{8});
}

}  // namespace
}  // namespace vedette::frame_pool_test
