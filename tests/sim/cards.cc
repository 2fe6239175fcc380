// Steps as cards would run them: arithmetic from shapes, and the roofline.
#include "sim/cards.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "vedette/check.h"
#include "vedette/machine.h"

namespace vedette::cards_test {
namespace {

using Shape = std::vector<std::int64_t>;

struct Operand {
  Shape shape;
  std::uint64_t element = 4;  // bytes
  TensorKind kind = TensorKind::activation;
};

// One op that reads and writes tensors of these shapes.
Trace step(const char* op, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
  Trace trace;
  trace.ops.push_back({.name = op, .time = {1}});
  for (const auto* const list : {&reads, &writes})
    for (const Operand& operand : *list) {
      std::uint64_t bytes = operand.element;
      for (const std::int64_t size : operand.shape) bytes *= static_cast<std::uint64_t>(size);
      (list == &reads ? trace.ops[0].reads : trace.ops[0].writes)
          .push_back({static_cast<std::uint32_t>(trace.tensors.size())});
      trace.tensors.push_back({.name = "t", .bytes = {bytes}, .kind = operand.kind, .shape = operand.shape});
    }
  return trace;
}

double arithmetic(const Trace& trace) { return arithmetic_of(trace, trace.ops[0]); }

TEST(Arithmetic, OfMatrixProductsIsTwiceTheProductOfTheirThreeSizes) {
  constexpr double m = 32, k = 48, n = 80;
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::mm", {{{32, 48}}, {{48, 80}}}, {{{32, 80}}})), 2 * m * k * n);
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::addmm", {{{80}}, {{32, 48}}, {{48, 80}}}, {{{32, 80}}})), 2 * m * k * n);
  EXPECT_NEAR(arithmetic(step("aten::bmm", {{{7, 32, 48}}, {{7, 48, 80}}}, {{{7, 32, 80}}})), 7 * 2 * m * k * n, 1);
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::relu", {{{32, 48}}}, {{{32, 48}}})), 0);
}

TEST(Arithmetic, OfConvolutionsIsThatOfEachOutputElement) {
  const Operand in{{8, 3, 32, 32}}, weight{{16, 3, 5, 5}, 4, TensorKind::weight}, out{{8, 16, 28, 28}};
  const double each = 2.0 * 8 * 16 * 28 * 28 * 3 * 5 * 5;
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::convolution", {in, weight}, {out})), each);
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::convolution_backward", {out, in, weight}, {in, weight})), 2 * each);
}

TEST(Arithmetic, OfAttentionIsThatOfBothProducts) {
  const Operand query{{2, 4, 128, 16}, 2};
  EXPECT_DOUBLE_EQ(arithmetic(step("aten::_scaled_dot_product_flash_attention", {query, query, query}, {query})),
                   2.0 * 2 * 2 * 4 * 128 * 128 * 16);
}

TEST(OnACard, AnOpTakesAsLongAsItsArithmeticOrItsBytes) {
  const Card& card = *card_named("h100");
  const auto time = [&](const Trace& trace, Estimate estimate) {
    return static_cast<double>(on_card(trace, card, estimate).ops[0].time.value) * 1e-9;
  };
  const Trace product = step("aten::mm", {{{8192, 8192}, 2}, {{8192, 8192}, 2}}, {{{8192, 8192}, 2}});
  const double flop = 2.0 * 8192 * 8192 * 8192;
  EXPECT_NEAR(time(product, Estimate::fast), flop / (0.8 * card.half), 1e-8);
  EXPECT_NEAR(time(product, Estimate::slow), flop / (0.4 * card.half), 1e-8);
  const Trace sum = step("aten::add", {{{1 << 20, 256}}, {{1 << 20, 256}}}, {{{1 << 20, 256}}});
  EXPECT_NEAR(time(sum, Estimate::fast), 3.0 * (1 << 30) / (0.9 * card.memory_bytes_per_s), 1e-8);
  EXPECT_DOUBLE_EQ(time(step("aten::add", {{{4}}}, {{{4}}}), Estimate::slow), 10e-6) << "an op has a least time";
}

TEST(OnACard, AStepOfAKnownTimeIsSharedByItsOperators) {
  const Card& card = *card_named("h100");
  Trace trace = step("aten::mm", {{{8192, 8192}, 2}, {{8192, 8192}, 2}}, {{{8192, 8192}, 2}});
  trace.ops.push_back({.name = "aten::add", .time = {1}, .reads = {{2}, {1}}, .writes = {{0}}});
  const auto all = [](const Trace& of) { return (of.ops[0].time + of.ops[1].time).value; };
  const std::int64_t slow = all(on_card(trace, card, Estimate::slow)), fast = all(on_card(trace, card, Estimate::fast));
  ASSERT_LT(fast, slow);
  for (const std::int64_t wanted : {fast / 3, fast, (fast + slow) / 2, slow, 3 * slow}) {
    const Trace known = on_card(trace, card, Nanoseconds{wanted});
    EXPECT_NEAR(static_cast<double>(all(known)), static_cast<double>(wanted), 2);
    EXPECT_GT(known.ops[0].time, known.ops[1].time) << "the product stays the longer one";
  }
}

TEST(Cards, HaveNamesOfTheirOwnAndMachines) {
  std::set<std::string_view> names;
  for (const Card& card : cards()) {
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_EQ(card_named(card.name), &card);
    EXPECT_LE(card.float32, card.tensor_float32) << card.name;
    EXPECT_LT(card.tensor_float32, card.half) << card.name;
    const Machine machine = machine_of(card, 64_GiB);
    EXPECT_EQ(machine.tiers[0].capacity, card.memory);
    EXPECT_NE(machine.link({1}, {0}), nullptr);
    EXPECT_NE(machine.link({0}, {1}), nullptr);
  }
  EXPECT_EQ(card_named("h1000"), nullptr);
}

TEST(Cards, HaveTheHostsMemoryOfTheirPresets) {
  int limited = 0;
  for (const MachinePreset& preset : machine_presets()) {
    const Card* const card = card_named(preset.name);
    if (card == nullptr) continue;
    const Machine there = preset.make(), here = machine_of(*card, {1'000'000'000'000});
    EXPECT_EQ(here.host_memory.bytes_per_s, there.host_memory.bytes_per_s) << preset.name;
    EXPECT_EQ(here.link({1}, {0})->bytes_per_s, there.link({1}, {0})->bytes_per_s) << preset.name;
    EXPECT_EQ(here.link({0}, {1})->bytes_per_s, there.link({0}, {1})->bytes_per_s) << preset.name;
    limited += there.host_memory.bytes_per_s != 0;
  }
  EXPECT_EQ(limited, 2);
}

}  // namespace
}  // namespace vedette::cards_test
