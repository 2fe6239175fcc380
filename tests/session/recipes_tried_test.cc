// Which recipes are tried: those of steps that may get a plan. A program that never repeats pays for a few ops a step.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "session/loop.h"

namespace vedette::recipes_tried_test {
namespace {

using testing::Block;

constexpr Bytes chunk = 64_KiB;
constexpr std::size_t ops = 24, told_apart_by = 8;

// Copies its operand to its result, and counts how often it ran.
class Counted final : public Recipe {
 public:
  Counted(const void* from, const void* to, std::size_t bytes, std::uint64_t signature,
          std::multiset<std::uint64_t>& runs)
      : from_(as_bytes(from)), to_(as_bytes(to)), bytes_(bytes), signature_(signature), runs_(runs) {}
  bool run(std::span<const Place> places) noexcept override {
    runs_.insert(signature_);
    const std::byte *from = from_, *to = to_;
    for (const Place& place : places) {
      if (place.was == from_) from = place.now;
      if (place.was == to_) to = place.now;
    }
    if (to == to_) return false;  // not where it is wanted
    std::memcpy(const_cast<std::byte*>(to), from, bytes_);
    return true;
  }
  bool uses(const std::byte* first, Bytes) const noexcept override { return first == from_ || first == to_; }
  std::uint64_t signature() const noexcept override { return signature_; }

 private:
  static const std::byte* as_bytes(const void* at) { return static_cast<const std::byte*>(at); }
  const std::byte *const from_, *const to_;
  const std::size_t bytes_;
  const std::uint64_t signature_;
  std::multiset<std::uint64_t>& runs_;  // signatures
};

class Program {
 public:
  explicit Program(Session& session) : session_(session), weight_(session, 200'000, true) {
    weight_.fill(3);
    session_.label(weight_.address(), "weight", TensorKind::weight);
  }

  // A step of this length; every length is another sequence of ops. How many recipes ran.
  std::size_t step(std::size_t length) {
    const std::size_t bytes = 100'000 + 64 * length;
    runs_.clear();
    const auto scope = session_.step();
    std::vector<Block> made;
    for (std::size_t i = 0; i < ops; ++i) {
      const Block& from = i == 0 ? weight_ : made.back();
      const void* const reads[] = {from.address()};
      const auto op = session_.op("copy", reads, {});
      Block out(session_, bytes);
      std::memcpy(&out[0], &from[0], bytes);
      if (session_.wants_recipe())
        session_.keep_recipe(std::make_unique<Counted>(from.address(), out.address(), bytes, length * 100 + i, runs_));
      made.push_back(std::move(out));
    }
    for (; !made.empty(); made.pop_back()) {
      const void* const reads[] = {made.back().address()};
      const auto op = session_.op("use", reads, {});
      same = same && made.back()[0] == weight_[0];
    }
    return runs_.size();
  }
  bool same = true;
  std::size_t different_recipes() const { return std::set(runs_.begin(), runs_.end()).size(); }  // of the latest step

 private:
  Session& session_;
  Block weight_;
  std::multiset<std::uint64_t> runs_;  // of the latest step
};

TEST(RecipesTried, AreThoseOfStepsThatMayGetAPlan) {
  const auto session =
      Session::open({.fast_memory = 1_MiB, .slow = "host", .chunk = chunk, .recompute = Recompute::always}).value();
  Program program(*session);
  program.step(0);  // warm-up
  EXPECT_GE(program.step(1), ops - 1) << "the first sequence is tried";
  for (std::size_t length = 2; length < 10; ++length) program.step(length);
  for (std::size_t length = 10; length < 20; ++length)
    EXPECT_LE(program.step(length), told_apart_by) << "no sequence came again so far";
  EXPECT_GE(program.step(19), ops - told_apart_by) << "one that comes again may get a plan, and is tried";
  const std::uint64_t before = session->counters().ops_recomputed;
  program.step(19);
  program.step(19);
  EXPECT_GT(session->counters().ops_recomputed, before) << "with what was tried its tensors are dropped";
  EXPECT_TRUE(program.same);
}

// Each tensor is dropped as soon as the next op does not use it: all but the last, which the next op reads.
TEST(RecipesTried, AlwaysDropsEachTensorThatHasOne) {
  for (const Bytes budget : {8_MiB, 1_MiB}) {
    const auto session =
        Session::open({.fast_memory = budget, .slow = "host", .chunk = chunk, .recompute = Recompute::always}).value();
    Program program(*session);
    for (int step = 0; step < 4; ++step) program.step(0);
    EXPECT_EQ(session->phase(), "planned");
    if (budget == 8_MiB)
      EXPECT_EQ(program.different_recipes(), ops - 1);
    else  // what cannot be made beside an op moves
      EXPECT_GT(program.different_recipes(), 0u);
    EXPECT_TRUE(program.same);
  }
}

}  // namespace
}  // namespace vedette::recipes_tried_test
