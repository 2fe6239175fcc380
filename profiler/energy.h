// The energy that a GPU takes while steps run, by differences of its counter: one reading at about each step's end. Of
// steps that are told together the first has all of it.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <optional>

#include "vedette/gpu_observer.h"
#include "vedette/units.h"

namespace vedette {

struct StepEnergy {
  std::uint64_t millijoules = 0;
  Nanoseconds watched;  // from about the end of the step before to about its own
};

class EnergyWatch {
 public:
  void watch(EnergyCounter counter);  // from now on, instead of the one before; an empty one: nothing is watched
  // Since the call before, or since watch(). Nothing where one of the two readings failed, or the counter began anew.
  std::optional<StepEnergy> since_last();

 private:
  struct Reading {
    Nanoseconds at;
    std::uint64_t millijoules = 0;
  };
  std::optional<Reading> read() const;

  EnergyCounter counter_;
  std::optional<Reading> last_;
};

}  // namespace vedette
