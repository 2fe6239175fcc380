// Profiles of two steps, made by hand: which ops are matched, and which bytes each layer has by pages and by operands.
#include <gmock/gmock.h>

#include <random>

#include "support/profile_match.h"

namespace vedette::match_test {
namespace {

Trace step_of(const std::vector<std::string>& names) {
  Trace trace;
  for (const std::string& name : names) {
    Op op;
    op.name = name;
    trace.ops.push_back(op);
  }
  return trace;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs_of(const ProfileMatch& match) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const auto& [one, other] : match.ops) pairs.emplace_back(one.value, other.value);
  return pairs;
}

TEST(MatchedProfiles, OpsAreMatchedByNameAndOrder) {
  using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  const ProfileMatch match = match_profiles(step_of({"copy", "mm", "relu", "mm", "loss"}),
                                            step_of({"copy", "copy", "mm", "relu", "add", "mm"}));
  EXPECT_EQ(pairs_of(match).size(), 4u);
  EXPECT_THAT(pairs_of(match), ::testing::IsSupersetOf(Pairs{{1, 2}, {2, 3}, {3, 5}}));
  EXPECT_EQ(match.only_in_pages, (std::vector<OpIndex>{{4}}));
  EXPECT_EQ(match.only_in_operands.size(), 2u);
  EXPECT_TRUE(match_profiles(Trace(), Trace()).ops.empty());
  EXPECT_EQ(match_profiles(step_of({"a"}), Trace()).only_in_pages.size(), 1u);
  EXPECT_EQ(match_profiles(Trace(), step_of({"a"})).only_in_operands.size(), 1u);
}

// The longest common subsequence, by the table of all prefixes.
std::size_t longest_common(const Trace& one, const Trace& other) {
  std::vector<std::vector<std::size_t>> table(one.ops.size() + 1, std::vector<std::size_t>(other.ops.size() + 1));
  for (std::size_t i = 0; i < one.ops.size(); ++i)
    for (std::size_t j = 0; j < other.ops.size(); ++j)
      table[i + 1][j + 1] =
          one.ops[i].name == other.ops[j].name ? table[i][j] + 1 : std::max(table[i][j + 1], table[i + 1][j]);
  return table.back().back();
}

TEST(MatchedProfiles, AsManyOpsAreMatchedAsCanBe) {
  std::mt19937 random(1);
  const auto made = [&] {
    std::vector<std::string> names;
    for (std::size_t i = random() % 20; i > 0; --i) names.emplace_back(1, static_cast<char>('a' + random() % 3));
    return step_of(names);
  };
  for (int round = 0; round < 500; ++round) {
    const Trace one = made(), other = made();
    const ProfileMatch match = match_profiles(one, other);
    EXPECT_EQ(match.ops.size(), longest_common(one, other));
    EXPECT_EQ(match.ops.size() + match.only_in_pages.size(), one.ops.size());
    EXPECT_EQ(match.ops.size() + match.only_in_operands.size(), other.ops.size());
    for (std::size_t i = 0; i < match.ops.size(); ++i) {
      EXPECT_EQ(one.ops[match.ops[i].first.value].name, other.ops[match.ops[i].second.value].name);
      if (i > 0) {
        EXPECT_LT(match.ops[i - 1].first, match.ops[i].first);
        EXPECT_LT(match.ops[i - 1].second, match.ops[i].second);
      }
    }
  }
}

TEST(MatchedProfiles, BytesAreThoseOfPagesAndOfOperandsByLayer) {
  Trace pages = step_of({"mm", "mm"}), operands = step_of({"mm", "mm"});
  for (Trace* const trace : {&pages, &operands}) {
    trace->tensors = {
        {.name = "weight", .bytes = 128_KiB}, {.name = "bias", .bytes = 4_KiB}, {.name = "x", .bytes = {65'537}}};
    trace->layers = {{.name = "one"}, {.name = "two"}};
    trace->ops[0].layer = LayerIndex{0};
    trace->ops[1].layer = LayerIndex{1};
    trace->ops[0].reads = {{0}, {1}};
    trace->ops[0].writes = {{2}};
    trace->ops[1].reads = {{0}};
    trace->ops[1].writes = {{0}};
  }
  pages.pages = {{.op = {0}, .tensor = {0}, .pages = {0, 32}, .read = true},
                 {.op = {0}, .tensor = {1}, .pages = {0, 1}, .read = true},
                 {.op = {0}, .tensor = {2}, .pages = {0, 17}, .written = true},
                 {.op = {1}, .tensor = {0}, .pages = {4, 6}, .read = true},
                 {.op = {1}, .tensor = {0}, .pages = {8, 9}, .written = true}};
  const auto all = match_profiles(pages, operands).layers, layers = match_profiles(pages, operands, 64_KiB).layers;
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].by_pages, Bytes{(132 << 10) + 65'537});
  EXPECT_EQ(all[0].by_operands, all[0].by_pages);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].by_pages, Bytes{(128 << 10) + 65'537}) << "the last page is no whole one, and the bias is small";
  EXPECT_EQ(layers[0].by_operands, layers[0].by_pages);
  EXPECT_EQ(layers[1].by_pages, 12_KiB) << "rows of a table";
  EXPECT_EQ(layers[1].by_operands, 128_KiB);
}

}  // namespace
}  // namespace vedette::match_test
