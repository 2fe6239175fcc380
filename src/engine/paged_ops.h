// Ops that needed more than the budget, and which of them is told to the program: the largest of a step, as the next
// step begins, since a smaller op's budget would not suffice. Later ones are told where they need more. Where no step
// begins, it is told some ops later: the first ones of a program grow from op to op, and each would name another
// budget. Pure; the owner's lock guards it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "moves/executor.h"

namespace vedette {

class PagedOps {
 public:
  struct Op {
    std::string name;
    std::uint32_t chunks = 0;
  };

  void note(std::string_view name, std::uint32_t chunks) {
    if (chunks <= largest_.chunks) return;
    largest_.name = name;
    largest_.chunks = chunks;
  }
  void begin_step() noexcept { step_runs_ = true; }
  void end_step() noexcept { step_runs_ = false; }

  // nullptr: nothing new. Else it counts as told.
  const Op* take() noexcept {
    if (largest_.chunks <= told_) return nullptr;
    if (told_ > 0 && largest_.chunks <= told_ + detail::Executor::chunks_beside_op) return nullptr;  // suffices
    told_ = largest_.chunks;
    untold_ops_ = 0;
    return &largest_;
  }
  const Op* take_as_op_begins() noexcept {
    constexpr std::uint32_t patience = 100;  // ops
    if (step_runs_ || largest_.chunks <= told_) return nullptr;
    return ++untold_ops_ >= patience ? take() : nullptr;
  }

 private:
  Op largest_;
  std::uint32_t told_ = 0, untold_ops_ = 0;
  bool step_runs_ = false;
};

}  // namespace vedette
