// The public face of the rehearsal that planners use.
#include "vedette/replay.h"

#include "policy/vedette_rehearse.h"

namespace vedette {

Result<Replayed> replay(const Trace& trace, const Machine& machine, const Plan& plan, const ReplayOptions& options) {
  return planning::rehearse(trace, planning::uses_of(trace), machine, plan, options);
}

}  // namespace vedette
