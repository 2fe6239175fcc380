// Wear of the disk that a run wrote. Thread rule: values.
#pragma once
#include <optional>
#include <string>

#include "base/daily.h"
#include "vedette/units.h"

namespace vedette::report {

// Of the steady steps: the writes to a disk, where the run's last tier is one.
struct Wear {
  bool known = false;
  Bytes a_step;  // on average
  double bytes_a_day = 0;
  std::optional<double> share_a_day;  // of the rated endurance
  std::string rated, words;           // "600 TBW"; "350 GB a day", with the share; empty: not rated, less than 1 GB
};

}  // namespace vedette::report
