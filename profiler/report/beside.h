// Two runs on one axis: memory and stalls of their shown steps, and the tensors that make the difference.
//
// Thread rule: values; the functions keep nothing.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/report/report.h"

namespace vedette::report {

struct AxisPoint {  // after a part of the step
  double at = 0;    // 0 to 1
  Bytes live, resident;
  Nanoseconds stalled;  // since the step began
};

// Of one name in both runs; 0 where a run has none.
struct TensorDifference {
  std::string name;                    // of this run, or of the other where it has none
  std::int64_t here = -1, there = -1;  // tensors
  bool renamed = false;                // names differ: met by role, size and the op that allocated them
  Bytes peak_here, peak_there;         // of it, alive at its run's peak
  Bytes moved_here, moved_there;       // in and out, in the shown step
  Nanoseconds stall_here, stall_there;
};

struct Beside {
  bool by_op = false;  // the axis: both steps ran the same ops; else shares of the steps' times
  std::string axis;    // a sentence
  std::vector<AxisPoint> here, there;
  Bytes peak_here, peak_there;  // with the scratch of the op
  // with a difference, the largest at the peak first; the last one may be what belongs to no tensor: it has no number
  std::vector<TensorDifference> tensors;
};

// Keeps the largest differences; of the rest nothing is told.
void shorten(Beside&, std::size_t most);
Beside beside_of(const Report& run, const Report& other);
nlohmann::ordered_json json_of(const Beside&);
std::string text_of(const Beside&);

}  // namespace vedette::report
