// Sorting what was sorted before and got more at its end: as std::stable_sort does, with fewer comparisons.
#include "base/sort_again.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace vedette {
namespace {

using Entries = std::vector<std::pair<int, int>>;  // what counts, and which was first

std::size_t comparisons;
bool before(const Entries::value_type& a, const Entries::value_type& b) {
  ++comparisons;
  return a.first < b.first;
}

TEST(SortAgain, GivesTheOrderOfAStableSort) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    Entries entries;
    for (std::uint64_t n = random() % 40; n > 0; --n)
      entries.emplace_back(static_cast<int>(random() % 20), static_cast<int>(entries.size()));
    const auto sorted = static_cast<std::ptrdiff_t>(random() % (entries.size() + 1));
    std::stable_sort(entries.begin(), entries.begin() + sorted, before);
    Entries expected = entries;
    std::stable_sort(expected.begin(), expected.end(), before);
    sort_again(entries.begin(), entries.end(), before);
    EXPECT_EQ(entries, expected);
  }
}

TEST(SortAgain, ComparesWhatIsSortedOnce) {
  Entries entries;
  for (int i = 0; i < 1000; ++i) entries.emplace_back(i, i);
  comparisons = 0;
  sort_again(entries.begin(), entries.end(), before);
  EXPECT_EQ(comparisons, 999u);
  entries.emplace_back(500, 1000);
  comparisons = 0;
  sort_again(entries.begin(), entries.end(), before);
  EXPECT_LE(comparisons, 2000u);
  EXPECT_EQ(entries[501], std::pair(500, 1000));
}

}  // namespace
}  // namespace vedette
