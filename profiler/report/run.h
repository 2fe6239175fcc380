// The input of a report: the facts of a recording, its profiles as traces, and one of its steps in full. A run of many
// steps is summed up by SQLite; only the step that stands for the others is read event by event, so that memory does
// not grow with the run.
//
// The step that stands for the others: of the steps that ran a plan, the bucket that most of them repeated, the one of
// median time. Without plans the median of all steps.
//
// Thread rule: one thread at a time.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/energy.h"
#include "profiler/noise.h"
#include "profiler/recording.h"
#include "vedette/model.h"
#include "vedette/observer.h"
#include "vedette/result.h"

namespace vedette::report {

struct StepRow {
  std::uint64_t step = 0;
  Nanoseconds began, ended;
  Counters counters;
  std::string phase;             // as Session::phase(); empty: not told
  std::string bucket;            // empty: none was repeated
  std::optional<Bytes> process;  // resident bytes of the whole process at its end
  std::optional<StepNoise> noise;
  std::optional<StepEnergy> energy;  // none: no counter was read
  Nanoseconds time() const noexcept { return ended - began; }
};

struct OpRow {  // an op that ran
  std::uint32_t op = 0;
  std::string name;
  Nanoseconds began, ended;
  Bytes live, resident;                      // as it left them; both 0: not told
  std::optional<std::uint32_t> stream = {};  // of a GPU
};

struct MoveRow {
  std::string verb, cause;
  std::uint64_t chunk = 0;
  Bytes bytes;
  Nanoseconds issued, started, ended;
  std::uint32_t tier = 1;  // the slow one
};

struct StallRow {
  std::uint32_t op = 0;
  bool in_allocation = false;
  Nanoseconds began, ended;
  Nanoseconds time() const noexcept { return ended - began; }
};

struct FaultRow {
  std::uint32_t op = 0;
  std::uint64_t chunk = 0, page = 0;
  bool write = false;
  Nanoseconds began, ended;
};

struct RecomputedRow {  // chunks that had been dropped together
  std::uint32_t op = 0;
  std::uint64_t chunk = 0, chunks = 0;
  std::uint64_t ops = 0;  // that ran again
  Nanoseconds began, ended;
  Nanoseconds time() const noexcept { return ended - began; }
};

struct StepEvents {  // of one step, for the timeline; times as the recording has them
  std::uint64_t step = 0;
  std::string phase, bucket;
  Nanoseconds began, ended;
  std::vector<OpRow> ops;
  std::vector<MoveRow> moves;
  std::vector<StallRow> stalls;
};

struct Profile {
  std::int64_t profile = 0;
  std::uint64_t step = 0;
  std::string bucket;
  bool tracked = false;  // page accesses were seen; else operands count as touched from end to end
  Trace trace;
  // of each of trace.pages: how many samples of a sampling monitor saw it; empty: seen exactly
  std::vector<std::uint32_t> samples;
  // of its tensors under a plan, bytes from the arena's first; or empty
  std::vector<std::optional<std::uint64_t>> places;
  // of its tensors' allocations: the program's frames, the innermost first; or empty
  std::vector<std::vector<std::string>> stacks;
};

struct PlanUnit {
  std::string name;
  Bytes bytes;
  std::optional<std::uint32_t> home;  // a tier
  std::optional<Span<std::uint64_t>> chunks;
};

struct PlannedMove {
  std::string verb;
  std::uint32_t issue = 0, due = 0;  // ops
  std::uint32_t unit = 0;
  std::optional<Span<Bytes>> part;
  std::string reason;
};

struct PlanRow {
  std::int64_t plan = 0;
  std::uint64_t step = 0;  // at whose end it came into force
  std::string bucket;
  Bytes reserved;
  std::vector<PlanUnit> units;
  std::vector<PlannedMove> moves;
  std::vector<std::string> reasons;  // of the policy's decisions
};

struct CauseTotal {  // over all steps
  std::string verb, cause;
  std::uint32_t tier = 1;  // the slow one
  std::uint64_t moves = 0;
  Bytes bytes;
};

struct Run {
  std::string path, program, policy;
  Origin origin;
  Bytes budget, chunk;
  Machine machine;
  std::uint64_t dropped_events = 0;
  bool ended = false;  // the recorder closed the file; else the run lives, or was killed
  std::optional<Nanoseconds> plain_step;
  std::vector<StepRow> steps;  // by number
  std::vector<CauseTotal> causes;
  std::vector<Profile> profiles;

  std::optional<std::size_t> shown;    // position in `steps`
  std::vector<std::size_t> steady;     // positions in `steps`: those that the shown one stands for
  std::optional<std::size_t> profile;  // position in `profiles`: of the shown step's bucket
  std::optional<PlanRow> plan;         // in force in the shown step
  std::vector<OpRow> ops;              // of the shown step, in order, as are the rest
  // by op: the least time that it took in the shown step or another steady one, stalls apart; of many steps some are
  // looked at. Empty: the shown step has no ops.
  std::vector<Nanoseconds> fastest;
  std::vector<MoveRow> moves, earlier_moves;  // the latter: of the step before
  std::vector<StallRow> stalls;
  std::vector<FaultRow> faults;
  std::vector<RecomputedRow> recomputed;
  std::vector<StepEvents> events;  // the shown step, those that were asked for, and as many others as there is room for

  bool has_phases() const noexcept { return origin.imported != "damon"; }  // a monitor's snapshots are of no phase
  const Profile* shown_profile() const noexcept { return profile ? &profiles[*profile] : nullptr; }
  const StepRow* shown_step() const noexcept { return shown ? &steps[*shown] : nullptr; }
  // The shown step ran the ops of its profile.
  bool follows_profile() const noexcept { return profile && ops.size() == profiles[*profile].trace.ops.size(); }
};

inline std::int64_t layer_of(const Op& op) noexcept {  // its number; -1: none
  return op.layer ? std::int64_t{op.layer->value} : -1;
}

// By op: its time without its stalls. The program's time between two ops counts to the second, as in a profile.
std::vector<Nanoseconds> own_times(Nanoseconds step_began, const std::vector<OpRow>&, const std::vector<StallRow>&);

// Gives each tensor a name of its own: "layer1.0.conv1 output". A name that the program gave once stays.
void name_tensors(Trace&);

struct LoadOptions {
  // for rows and texts: a million steps take 220 MiB; what is computed from them takes some times more
  Bytes most_memory{std::uint64_t{256} << 20};
  std::vector<std::uint64_t> steps = {};  // whose events are wanted before those of others
};

// Errors: Cause::system (no such file, SQLite's reason), malformed_input (no recording, or damaged), unsupported
// (another schema, or more than options.most_memory is needed).
Result<Run> load_run(const std::string& path, const LoadOptions& options = {});

}  // namespace vedette::report
