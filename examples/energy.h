// The energy that a GPU takes, by NVML's counter, where it is there: all processes together, to a millijoule.
//
// Thread rule: one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace vedette::examples {

class Energy {
 public:
  explicit Energy(const std::string& device);        // "cpu": there is none; "cuda": of the first GPU
  std::optional<std::uint64_t> millijoules() const;  // since the driver was loaded

 private:
  std::function<std::optional<std::uint64_t>()> counter_;  // empty: there is none
};

}  // namespace vedette::examples
