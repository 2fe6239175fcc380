// A stable sort of a range that was sorted before and got more at its end: its sorted beginning is compared once.
//
// The result is that of std::stable_sort, whatever the range is. Of n elements of which the last k are out of order it
// takes n + O(k log k) + O(n) comparisons, and n - 1 where none is.
#pragma once
#include <algorithm>

namespace vedette {

template <class Iterator, class Before>
void sort_again(Iterator begin, Iterator end, Before before) {
  const Iterator middle = std::is_sorted_until(begin, end, before);
  if (middle == end) return;
  std::stable_sort(middle, end, before);
  // from here on: what comes before the first of the others is in its place
  std::inplace_merge(std::upper_bound(begin, middle, *middle, before), middle, end, before);
}

}  // namespace vedette
