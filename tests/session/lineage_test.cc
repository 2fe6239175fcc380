// In which way tensors can be recomputed: chains in place as a whole, means that are dead, and what must not be used.
#include "session/lineage.h"

#include <gtest/gtest.h>

namespace vedette::detail::lineage_test {
namespace {

class Empty final : public Recipe {
 public:
  bool run(std::span<const Place>) noexcept override { return true; }
  bool uses(const std::byte*, Bytes) const noexcept override { return true; }
  std::uint64_t signature() const noexcept override { return 0; }
};

using Numbers = std::vector<std::uint32_t>;

class Program {
 public:
  Lineage lineage;

  void weight(std::uint32_t t) { lineage.exists(t, true); }
  void foreign(std::uint32_t t) { lineage.exists(t, false); }
  // An op that reads and changes, and makes what is new in `results`.
  void op(const Numbers& reads, const Numbers& changes, const Numbers& results, bool recipe = true) {
    lineage.begin_op(op_, reads, changes);
    for (const std::uint32_t t : results) lineage.born(t, op_);
    if (recipe) lineage.keep(op_, std::make_unique<Empty>(), [](std::uint32_t) { return true; });
    ++op_;
  }
  Lineage::Way way(const Numbers& wanted) const { return lineage.way(wanted).value_or(Lineage::Way{}); }
  bool possible(const Numbers& wanted) const { return lineage.way(wanted).has_value(); }

 private:
  std::uint32_t op_ = 0;
};

constexpr std::uint32_t input = 0, weight = 1, a = 2, b = 3, c = 4;

// a = f(weight), b = g(a, weight), c = h(b)
Program chain() {
  Program program;
  program.weight(weight);
  program.op({weight}, {}, {a});
  program.op({a, weight}, {}, {b});
  program.op({b}, {}, {c});
  return program;
}

TEST(Lineage, MakesATensorFromWhatLives) {
  const Program program = chain();
  EXPECT_EQ(program.way({b}).ops, Numbers{1});
  EXPECT_EQ(program.way({b}).made, Numbers{b});
  EXPECT_EQ(program.way({b}).sources, (Numbers{weight, a}));
  EXPECT_EQ(program.way({a, b}).ops, (Numbers{0, 1}));
  EXPECT_EQ(program.way({a, b}).sources, Numbers{weight});
}

TEST(Lineage, MakesDeadMeansFirst) {
  Program program = chain();
  program.lineage.died(b);
  EXPECT_EQ(program.way({c}).ops, (Numbers{1, 2}));
  EXPECT_EQ(program.way({c}).made, (Numbers{b, c}));
  program.lineage.lives(b);
  EXPECT_EQ(program.way({c}).ops, Numbers{2});
}

TEST(Lineage, RepeatsAChainInPlaceAsAWhole) {
  Program program;
  program.weight(weight);
  program.op({weight}, {}, {a});
  program.op({a}, {a}, {});          // relu_
  program.op({a, weight}, {a}, {});  // add_
  EXPECT_EQ(program.way({a}).ops, (Numbers{0, 1, 2}));
  EXPECT_EQ(program.way({a}).made, Numbers{a});
}

TEST(Lineage, UsesASourceOnlyInTheVersionThatItHas) {
  Program program = chain();
  program.op({a}, {a}, {});  // after b was made from it: b needs a as it was
  EXPECT_EQ(program.way({b}).ops, (Numbers{0, 1}));
  EXPECT_EQ(program.way({b}).made, (Numbers{a, b})) << "a copy of a as it was";
  EXPECT_EQ(program.way({b}).sources, Numbers{weight});
  program.op({}, {weight}, {});  // an optimizer's step
  EXPECT_FALSE(program.possible({b})) << "the weight as it was is nowhere";
}

TEST(Lineage, TrustsNoMemoryThatNoOpWrote) {
  Program program;
  program.foreign(input);
  program.op({input}, {}, {a});
  program.op({a}, {}, {b});
  EXPECT_FALSE(program.possible({a})) << "a loader may fill its buffer again";
  EXPECT_TRUE(program.possible({b}));
  program.lineage.died(a);
  EXPECT_FALSE(program.possible({b}));
}

TEST(Lineage, NeedsARecipeOfEachOp) {
  Program program;
  program.weight(weight);
  program.op({weight}, {}, {a}, false);
  program.op({a}, {}, {b});
  EXPECT_TRUE(program.possible({b}));
  EXPECT_FALSE(program.possible({a}));
  EXPECT_FALSE(program.possible({weight})) << "no op of the step made it";
  program.lineage.drop_recipe(1);
  EXPECT_FALSE(program.possible({b}));
}

// empty, then bernoulli_: what it changes in place has no bytes yet. A tensor that was filled without an announcement
// is read, and cannot be made.
TEST(Lineage, TakesUndefinedBytesOnlyWhereTheyAreChanged) {
  Program program;
  program.lineage.born(a, std::nullopt);
  program.op({a}, {a}, {});
  EXPECT_TRUE(program.possible({a}));
  program.lineage.born(b, std::nullopt);
  program.op({b}, {}, {c});
  EXPECT_FALSE(program.possible({c}));
}

TEST(Lineage, GivesOnlyWhatTheRecipeUses) {
  Program program;
  program.weight(weight);
  program.weight(input);  // running statistics: changed by the op, not by its recipe
  program.lineage.begin_op(0, Numbers{weight, input}, Numbers{input});
  program.lineage.born(a, 0);
  program.lineage.keep(0, std::make_unique<Empty>(), [](std::uint32_t t) { return t != input; });
  EXPECT_EQ(program.way({a}).sources, Numbers{weight});
  EXPECT_EQ(program.way({a}).made, Numbers{a});
  EXPECT_FALSE(program.possible({input}));
}

TEST(Lineage, EndsWhereAWayIsTooLong) {
  Program program;
  program.weight(weight);
  program.op({weight}, {}, {10});
  for (std::uint32_t t = 10; t < 10 + Lineage::most_ops; ++t) {
    program.op({t}, {}, {t + 1});
    program.lineage.died(t);
  }
  EXPECT_FALSE(program.possible({10 + Lineage::most_ops}));
}

}  // namespace
}  // namespace vedette::detail::lineage_test
