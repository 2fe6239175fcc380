// The public face of the rehearsal that planners use.
#include "vedette/replay.h"

#include <utility>

#include "policy/vedette_rehearse.h"

namespace vedette {

Result<Replayed> replay(const Trace& trace, const Machine& machine, const Plan& plan, const ReplayOptions& options) {
  auto rehearsed = planning::rehearse(trace, planning::uses_of(trace), machine, plan, options.steps);
  if (!rehearsed) return rehearsed.error();
  return Replayed{.measured = std::move(rehearsed->measured),
                  .ideal = rehearsed->ideal,
                  .bytes_in = rehearsed->bytes_in,
                  .bytes_out = rehearsed->bytes_out,
                  .bytes_dropped = rehearsed->bytes_dropped,
                  .unplanned = rehearsed->unplanned,
                  .peak = rehearsed->peak,
                  .step_times = std::move(rehearsed->step_times)};
}

}  // namespace vedette
