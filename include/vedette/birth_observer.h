// A session tells more than Observer's events to an observer that would know from where in the program tensors come:
// each birth, while no plan is known for the running step. An observer that inherits from BirthObserver as well is
// found by its type.
//
// Thread rule: wants_births() as the session opens. Others come while the session holds its lock, so one at a time;
// born() from the thread that allocates, inside its call. They allocate nothing by way of the session.
#pragma once
#include <cstdint>
#include <span>

namespace vedette {

class BirthObserver {
 public:
  virtual ~BirthObserver() = default;
  virtual bool wants_births() const noexcept { return true; }
  virtual void born(std::uint64_t /*step*/, std::uint32_t /*birth*/) noexcept {}
  // Called before profiled(): of each tensor of its trace the number that born() told, if it was born in that step.
  virtual void births_profiled(std::uint64_t /*step*/, std::span<const std::uint32_t> /*births*/) {}
};

}  // namespace vedette
