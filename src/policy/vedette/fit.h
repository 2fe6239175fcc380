// Tensors that no op uses again, yet that die only later: the operand of a convolution's backward that has been copied,
// while the gradients of weights are computed. The sweep gives their room to others when they die. Where the links idle
// until then, and the next fetch waits for that room, an eviction lets the fetch come sooner. Found in ResNet-18's
// optimizer (docs/tried.md). Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#include "policy/vedette/sweep.h"
#include "vedette/replay.h"

namespace vedette::planning {

// The simulator, and the cost of a simulated step; a planner keeps the plan of the least cost.
struct Trial {
  std::function<Result<Replayed>(const Plan&)> simulate;
  std::function<std::int64_t(const Replayed&)> cost;
};

struct Fitted {
  Plan plan;
  Nanoseconds stall;  // simulated
  Bytes bytes;        // evicted after their last use
};

// The plan with the evictions after last uses that lower its cost. Tensors of one last use and one death are tried
// together, once, the largest group first, within `most_tries` simulations. Their room is given to others from their
// deaths on, as before, so no op depends on these writes.
Fitted evict_after_last_use(const Trace& trace, const Uses& uses, const Setting& setting, Plan plan, const Trial& trial,
                            std::size_t most_tries);

}  // namespace vedette::planning
