// Orders of ops: what the judge allows is what keeps every op's bytes, tried on all orders of small steps.
#include "model/dependences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "vedette/check.h"

namespace vedette::dependences_test {
namespace {

using Order = std::vector<OpIndex>;

Order as_traced(const Trace& trace) {
  Order order(trace.ops.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = {i};
  return order;
}

// Runs the ops on values. An op makes a hash of itself, of its reads and, with hidden state, of a number that such ops
// draw in turn. A write may leave some of the tensor as it was. An op without a write tells the program, which may look
// at all that ran by then.
std::vector<std::size_t> bytes_after(const Trace& trace, const Order& order) {
  const auto mix = [](std::size_t a, std::size_t b) { return (a ^ (b + 0x9e3779b97f4a7c15U)) * 0xbf58476d1ce4e5b9U; };
  std::vector<std::size_t> made(trace.ops.size()), value(trace.tensors.size());
  std::size_t drawn = 0, ran = 0;
  for (const OpIndex i : order) {
    const Op& op = trace.ops[i.value];
    made[i.value] = mix(i.value, 0);
    for (const TensorIndex t : op.reads) made[i.value] = mix(made[i.value], value[t.value]);
    if (op.name == "dropout") made[i.value] = mix(made[i.value], ++drawn);
    if (op.name == "item") made[i.value] = mix(made[i.value], ran);
    for (const TensorIndex t : op.writes) value[t.value] = mix(value[t.value], made[i.value]);
    ran += mix(i.value, 1);
  }
  made.insert(made.end(), value.begin(), value.end());
  return made;
}

Trace random_step(std::mt19937& random, std::uint32_t ops) {
  Trace trace;
  for (std::uint32_t t = 0; t < 4; ++t) trace.tensors.push_back({.name = "p", .bytes = {4096}, .persistent = true});
  for (std::uint32_t i = 0; i < ops; ++i) {
    const auto count = static_cast<std::uint32_t>(trace.tensors.size());
    const auto kind = random() % 8;
    Op op{.name = kind < 2 ? "dropout" : kind == 2 ? "aten::view" : kind == 3 && i % 3 == 2 ? "item" : "f"};
    for (auto k = random() % 3; k > 0; --k) op.reads.push_back({static_cast<std::uint32_t>(random()) % count});
    if (op.name == "f" && random() % 2 == 0) trace.tensors.push_back({.name = "t", .bytes = {4096}});
    if (op.name == "dropout" || op.name == "f")
      op.writes.push_back({count < trace.tensors.size() ? count : static_cast<std::uint32_t>(random()) % 4});
    std::sort(op.reads.begin(), op.reads.end());
    op.reads.erase(std::unique(op.reads.begin(), op.reads.end()), op.reads.end());
    trace.ops.push_back(std::move(op));
  }
  return trace;
}

Machine roomy() { return {.tiers = {{.name = "dram", .capacity = {1 << 30}}}, .can_reorder = true}; }
Plan in_order(const Trace& trace, const Order& order) {
  return {.home = std::vector<TierIndex>(trace.tensors.size()), .order = order};
}

TEST(Orders, AreLegalExactlyWhereEachOpFindsItsBytes) {
  std::mt19937 random(11);
  std::size_t legal = 0, illegal = 0;
  for (int round = 0; round < 40; ++round) {
    const Trace trace = random_step(random, 6);
    const auto expected = bytes_after(trace, as_traced(trace));
    Order order = as_traced(trace);
    do {
      const auto violation = check(trace, roomy(), in_order(trace, order));
      const auto why = misplaced(trace, order);
      ASSERT_EQ(violation.has_value(), why.has_value()) << round;
      ASSERT_EQ(!violation, bytes_after(trace, order) == expected) << round;
      EXPECT_EQ(violation.value_or(Violation{.rule = Rule::allowed, .message = {}}).rule, Rule::allowed);
      ++(violation ? illegal : legal);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_GT(legal, 1000u);
  EXPECT_GT(illegal, 10'000u);
}

TEST(Orders, KeepRandomNumbersCollectivesAndAnswersInTurn) {
  const auto turn = [](const char* name, bool writes = true) {
    return turn_of({.name = name, .writes = writes ? std::vector<TensorIndex>{{0}} : std::vector<TensorIndex>{}});
  };
  EXPECT_EQ(turn("matmul"), Turn::free);
  for (const char* name : {"aten::dropout", "Dropout_Forward", "multinomial", "nccl:all_reduce"})
    EXPECT_EQ(turn(name), Turn::in_turn) << name;
  EXPECT_EQ(turn("dropout_backward"), Turn::free);
  EXPECT_EQ(turn("aten::as_strided", false), Turn::free);
  EXPECT_EQ(turn("aten::item", false), Turn::fence);
  EXPECT_EQ(turn_of({.name = "f", .writes = {{0}}, .runs_again = false}), Turn::in_turn);
}

TEST(Orders, AreRefusedInOneSentence) {
  const Trace trace{.tensors = {{.name = "w", .bytes = {4096}, .persistent = true}},
                    .ops = {{.name = "f", .writes = {{0}}}, {.name = "g", .writes = {{0}}}}};
  const auto said = [&](Order order) { return check(trace, roomy(), in_order(trace, std::move(order)))->message; };
  EXPECT_EQ(said({{1}, {0}}), "op 1 is placed before op 0, which it has to follow");
  EXPECT_EQ(said({{0}}), "the order does not name each op once");
  EXPECT_EQ(said({{0}, {7}}), "the order does not name each op once");
  EXPECT_EQ(misplaced(trace, Order{{1}, {0}}), "op 1 is placed before op 0, which it has to follow");
  EXPECT_EQ(misplaced(trace, Order{{0}, {7}}), "the order does not name each op once");
}

// x is read by both ops, and the first had freed it by the program's word.
TEST(Orders, LetATensorDieAfterItsLastAccess) {
  const Trace trace{
      .tensors = {{.name = "w", .bytes = {4096}, .persistent = true},
                  {.name = "x", .bytes = {4096}},
                  {.name = "y", .bytes = {4096}}},
      .ops = {{.name = "m", .reads = {{0}}, .writes = {{1}}},
              {.name = "f", .reads = {{1}}, .writes = {{2}}},
              {.name = "g", .reads = {{1}}, .writes = {{0}}, .frees = {{1}, {2}}}},
      .pages = {{.op = {1}, .tensor = {1}, .pages = {0, 1}}, {.op = {2}, .tensor = {1}, .pages = {0, 1}}}};
  const Trace made = reordered(trace, Order{{0}, {2}, {1}});
  EXPECT_THAT(made.ops[1].frees, ::testing::IsEmpty());
  EXPECT_THAT(made.ops[2].frees, ::testing::ElementsAre(TensorIndex{1}, TensorIndex{2}));
  EXPECT_EQ(made.ops[1].name, "g");
  EXPECT_EQ(made.pages[0].op, OpIndex{1});
  EXPECT_EQ(reordered(trace, as_traced(trace)), trace);
}

}  // namespace
}  // namespace vedette::dependences_test
