// The upper median of what rounds measured.
#pragma once
#include <algorithm>
#include <vector>

namespace vedette {

inline double median(std::vector<double> values) {  // 0: there are none
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace vedette
