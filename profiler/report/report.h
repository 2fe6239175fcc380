// The figures of a report, computed once and shown three ways: as a page, as text, as JSON.
//
// Bytes and nanoseconds are whole numbers; times of the shown step count from its begin. A tensor, layer or op is told
// by its number in the profile that the shown step repeats. Intervals are half open. docs/report.md says what each
// figure means.
//
// Thread rule: values; the functions keep nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/report/heat.h"
#include "profiler/report/prices.h"
#include "profiler/report/run.h"
#include "profiler/report/wear.h"

namespace vedette::report {

struct Headline {
  std::string program, policy;
  std::string imported;              // as Origin::imported
  std::uint64_t ops = 0;             // of the shown profile
  std::optional<bool> fits;          // resident bytes never exceeded the budget; none: no budget is known
  Bytes budget, peak, resident_max;  // budget 0: none is known; peak: most bytes that lived at once
  double budget_share = 0;           // budget / peak; 0: no peak is known
  std::uint64_t steps = 0, steady_steps = 0;
  Nanoseconds median_step;  // of the steady steps
  // Of their times, the lower and the upper quartile, both included. Two runs whose intervals overlap are not ranked.
  Span<Nanoseconds> step_quartiles;
  std::optional<Nanoseconds> plain_step;
  std::optional<double> speed_of_plain;  // plain / median: 1 is as fast
  std::optional<Nanoseconds> compute;    // the ops' own times: no step can be faster
  // no plan is faster: given by ReportOptions, else the longer of compute and the fetches of tensors that cannot stay
  std::optional<Nanoseconds> bound;
  std::optional<double> speed_of_bound;  // bound / median
  Nanoseconds stall;                     // a steady step's, the median
  double stall_share = 0;                // stall / median_step
  MovedBytes moved;                      // of the shown step
  std::uint64_t faults = 0;              // of the shown step
  std::uint64_t dropped_events = 0;
};

// Of the steady steps, as far as a GPU's counter was read beside them; all processes are in it. The counter may
// move on no more than ten times a second: of shorter steps the mean says more than the median.
struct Energy {
  std::uint64_t steps = 0;  // 0: nothing is known
  std::string device;
  double median_j = 0, mean_j = 0;  // of a step
  double watts = 0;                 // while these steps were watched
};

// Of the steady steps, medians: what the machine did beside them.
struct Noise {
  bool known = false;
  Nanoseconds processor;       // of all threads of the process
  std::uint64_t switches = 0;  // involuntary
  // of the step's time: taken by a hypervisor (of all processors' time), and in which some task of the machine waited
  std::optional<double> steal, processor_wait, memory_wait, io_wait;
  bool disturbed = false;  // steps differ by more than a fifth, or another program or machine took part of the time
  std::string why;         // a sentence; empty: it is not disturbed
};

struct LayerTime {
  std::int64_t layer = -1;
  Nanoseconds time;
};

enum class Lost : std::uint8_t {
  operators,   // they took longer than their least time: moves beside them, chunks mapped anew, other programs
  late_fetch,  // an op waited for an operand
  no_room,     // an allocation waited for room, and nothing was being written
  write,       // an op or an allocation waited, and what it waited for was a write to the slow tier
  fault,       // an access that no op announced
};

struct LostTime {
  Lost cause = Lost::operators;
  Nanoseconds time;               // beyond the bound
  Nanoseconds in_bound;           // the same, but no plan avoids it: it is in the bound
  std::vector<LayerTime> layers;  // of both together, the largest first
};

// The way from the proven bound to the shown step: bound + the times of `lost` = step + ahead, to the nanosecond.
struct Waterfall {
  bool known = false;  // it needs the times of a whole step, and its profile
  Nanoseconds bound, step;
  Nanoseconds ahead;           // the step was faster than the bound by this: large ops ran in sections
  Nanoseconds beside_moves;    // of the longer operators' time, in ops beside which bytes moved
  std::vector<LostTime> lost;  // one of each cause, in their order
  // of the step's time: some task of the machine waited for a processor, which makes operators longer
  std::optional<double> processor_wait;
};

enum class Change : std::uint8_t { step_in_backward, more_memory, chunk, policy, less_memory, recompute, no_bound };

struct Advice {
  Change change = Change::step_in_backward;
  std::string sentence;  // the remedy, and the time of a step with it
  Nanoseconds step;      // predicted: the measured one and the simulated difference
  Bytes budget, chunk;   // with it
  std::string policy;
  std::int64_t late_fewer = 0;  // fetches that came late or were not planned
};

// At most one line of each kind, the largest gain first. Each is priced by the simulator on the profiled step, laid
// into chunks, against the same simulation of the run as it was.
struct Advised {
  std::vector<Advice> lines;
  std::optional<Nanoseconds> simulated;  // the run as it was
  std::string note;                      // why there are no lines
};

struct MemorySample {  // after an op of the shown step; of very many ops the highest of each few
  Nanoseconds time;
  Bytes live, resident;
};

struct MoveRate {  // bytes whose transfer ended in a slice of the step
  Span<Nanoseconds> time;
  Bytes in, out;
};

struct PhaseSpan {
  std::string phase;
  Span<Nanoseconds> time;
};

struct Memory {
  std::vector<MemorySample> samples;
  std::string live_source;  // "measured" at op ends, or "traced": summed over the profile's lifetimes
  std::vector<MoveRate> moved;
  std::vector<PhaseSpan> phases;
};

struct LayerRow {
  std::int64_t layer = -1;
  std::string name, phase;
  std::uint64_t ops = 0;
  Nanoseconds time;           // in the shown step, without its stalls
  Bytes read, written;        // different bytes: pages where they were tracked, else operands
  Bytes moved_in, moved_out;  // transfers that ended while it ran
  Nanoseconds stall;
  std::uint64_t faults = 0;
};

enum class Warmth : std::uint8_t { untouched, short_lived, hot, cold };

struct TensorRow {
  std::uint32_t tensor = 0;
  std::string name, role;
  std::vector<std::int64_t> shape;
  std::string site;                     // layer and op that allocated it
  std::vector<std::string> stack = {};  // of that allocation: the program's frames, the innermost first
  Bytes bytes;
  bool persistent = false;
  std::optional<Span<std::uint32_t>> life;  // ops
  std::string first_layer, last_layer;      // that touch it
  std::uint64_t reads = 0, writes = 0;      // ops
  Nanoseconds longest_gap;                  // between two accesses, round the step's seam if it is persistent
  Warmth warmth = Warmth::untouched;
  std::string tier;  // home under the plan; "mixed"; empty: not known
  // moves of chunks that hold a part of it, while it lived, in the shown step
  std::uint64_t fetches = 0, evictions = 0;
};

struct ShortLived {                            // tensors that live within one layer
  std::uint64_t tensors = 0, all_tensors = 0;  // scratch within one op is not counted: it is no tensor of the profile
  Bytes bytes, all_bytes;
  Bytes peak;          // most of them alive at once
  Bytes scratch_peak;  // most scratch of one op
};

struct SharingOf {  // pages or chunks of one layout
  std::uint64_t used = 0;
  // two tensors that live at the same time lie in it and are not touched by the same layers
  std::uint64_t shared = 0;
  // summed over layers: living bytes in chunks that the layer touches, which it does not touch
  Bytes dragged;
};

struct Sharing {
  bool known = false;
  SharingOf pages_before, pages_after, chunks_before, chunks_after;
};

struct ReuseBin {  // distances [least, 2 * least), least 0: again at once
  Bytes least;
  std::uint64_t accesses = 0;
  Bytes bytes;
};

struct CurvePoint {
  double share = 0;  // of the peak
  Bytes fast_memory;
  std::optional<Bytes> lru_in;          // fetched a step where the least recently used leaves; none: an op does not fit
  std::optional<Nanoseconds> transfer;  // of lru_in over the link, were nothing hidden
  std::optional<Nanoseconds> step, stall;  // simulated
  std::optional<Bytes> bytes_in, bytes_out;
  std::optional<Nanoseconds> bound;
  std::string note;  // why nothing was simulated
};

struct Reuse {
  std::vector<ReuseBin> histogram;
  std::vector<CurvePoint> curve;
  bool simulated = false;
  std::string policy;     // that was simulated
  bool in_parts = false;  // tensors were cut into the chunks that the profiled step touched
};

struct PlanMoveRow {
  std::uint64_t position = 0;
  std::string verb, unit, fate;  // "in time", "late", "early", "not needed"
  std::uint32_t issue = 0, due = 0;
  Bytes bytes;
  std::optional<Nanoseconds> lead;  // from the bytes' arrival to when the op that is due wants them; negative: late
  std::string reason;               // the policy's
};

struct PlanFigures {
  bool known = false;
  std::int64_t plan = 0;
  std::uint64_t planned_fetches = 0, planned_evictions = 0;        // chunks
  std::uint64_t in_time = 0, late = 0, early = 0, not_needed = 0;  // planned fetches
  std::uint64_t wasted = 0;                                        // fetched chunks that left before an op used them
  std::uint64_t missed = 0;                                        // fetches without a plan
  std::uint64_t unplanned_evictions = 0;
  Nanoseconds late_wait;  // stalls for operands
  Nanoseconds early_limit;
  std::vector<PlanMoveRow> moves;  // fetches, by lead; the worst ones
  std::vector<std::string> reasons;
};

struct RecomputedTensor {
  std::uint32_t tensor = 0;
  std::string name;
  Bytes bytes;              // of it, in chunks that were recomputed, each time
  std::uint64_t times = 0;  // it was in a group that was recomputed
  std::string reason;       // the plan's, of the drop; empty: no plan that is known had it
};

struct Recomputed {  // in the shown step
  std::uint64_t groups = 0, ops = 0;
  Bytes bytes;
  Nanoseconds time;  // waits for room and for what the ops read included
  // Had the bytes been written out and fetched instead; some may have left without a transfer.
  Bytes spared;
  std::optional<Nanoseconds> spared_time;  // of the links; none: the machine's are not known
  std::vector<RecomputedTensor> tensors;   // the largest first
};

struct TimelineOp {
  std::string name;
  std::int64_t layer = -1;                   // in the shown profile; -1: none, or the step is of another
  Span<Nanoseconds> time;                    // counts from the step's begin, as the others
  std::optional<std::uint32_t> stream = {};  // of a GPU
};

struct TimelineMove {
  std::string verb, cause;
  std::int64_t tensor = -1;  // of the chunk's tensors the one that is used next; -1: not known
  std::uint64_t chunk = 0;
  Bytes bytes;
  Nanoseconds issued;
  Span<Nanoseconds> time;
  std::uint32_t tier = 1;  // the slow one
};

struct TimelineStall {
  std::uint32_t op = 0;
  bool in_allocation = false;
  Span<Nanoseconds> time;
  std::int64_t move = -1;   // of the same step, that it waited for; -1: not known
  std::string why, remedy;  // sentences: why the bytes were not there, what would have made it in time
};

struct StepTimeline {
  std::uint64_t step = 0;
  std::string phase;
  Nanoseconds time;
  std::vector<TimelineOp> ops;
  std::vector<TimelineMove> moves;
  std::vector<TimelineStall> stalls;
};

struct Timeline {
  std::vector<StepTimeline> steps;   // by number
  std::uint64_t steps_left_out = 0;  // --step names those that are wanted
};

// Steps of one phase: what they followed, and what it cost.
struct Followed {
  std::string phase;  // as Session::phase()
  std::uint64_t steps = 0;
  Nanoseconds time, stall;  // of all of them
  Bytes moved;
  std::uint64_t faults = 0;
};

struct Overhead {
  std::optional<Bytes> process;    // resident bytes of the process, most at a step's end
  std::optional<Bytes> unmanaged;  // of them, outside of fast memory
  std::optional<Nanoseconds> profiling_step, warm_up_step;
  std::optional<double> profiling_cost;  // profiling step / median step
  std::optional<std::uint64_t> events_written, events_dropped;
  Wear wear;
};

struct ToldSteps {
  std::vector<StepRow> rows;  // at most as many as fit a picture
  std::uint64_t left_out = 0;
  std::optional<std::uint64_t> shown;  // by number
};

struct Report {
  std::string path;
  // warnings: still being written, events dropped, pages not tracked
  std::vector<std::string> remarks;
  Headline headline;
  Origin origin;
  Waterfall waterfall;
  Advised advised;
  ToldSteps steps;
  std::vector<CauseTotal> causes;
  Machine machine;
  Memory memory;
  Heat heat;
  std::vector<LayerRow> layers;
  std::vector<TensorRow> tensors;
  std::uint64_t tensors_left_out = 0;  // of a page: see shorten()
  ShortLived short_lived;
  Sharing sharing;
  Reuse reuse;
  PriceList prices;
  PlanFigures plan;
  Recomputed recomputed;
  Timeline timeline;
  Noise noise;
  Energy energy;
  std::vector<Followed> followed;  // in order of the first step; empty: phases are not told
  Overhead overhead;
};

struct LayerCost {
  Nanoseconds time, stall;
  Bytes moved;  // in and out
};

// One layer of two runs.
struct LayerDifference {
  std::string name, phase;  // no name: ops without a layer
  LayerCost here, there;
  Nanoseconds change;  // of time and stall together, from here to there
};

// The largest changes first, whichever their sign.
std::vector<LayerDifference> compared(const Report& run, const Report& other);

// No plan is faster.
using Bound = std::function<Nanoseconds(const Trace&, const Machine&)>;

// The step as a session under this policy lays it into the machine's granules: tensors are units that move as one.
// Where the machine can recompute, its ops say which of them can run again, as far as their names tell.
using InChunks = std::function<Trace(const Trace&, const Machine&, std::string_view policy)>;

// The simulator that prices advice. The command line gives it.
struct Adviser {
  Simulate simulate;  // empty: there is no advice
  InChunks in_chunks;
  std::vector<std::string> policies;  // that a session runs
};

struct ReportOptions {
  Simulate simulate;  // empty: the curve has no simulated steps
  Bound bound;
  std::optional<Nanoseconds> plain_step;    // overrides the recording's
  std::string policy = {};                  // that is simulated; empty: the recording's
  std::optional<Endurance> endurance = {};  // of the run's disk
  std::optional<Machine> machine = {};      // on which other budgets are simulated; none: the recording's
  std::size_t heat_rows = 480, most_ranges = 200000, most_steps = 2000;
  Adviser adviser = {};
  Pricer pricer = {};
};

Report analyse(const Run& run, const ReportOptions& options);

// Its parts, each of one file.
// The shown profile. An op's time is its least in the profiled step and in the steady ones that run.h compares, because
// it may have been slow while profiled or beside moves. Needs a shown profile.
Trace steady_trace(const Run&);
// The same for a simulator: where pages were tracked, persistent tensors are cut into the runs of chunks that the same
// ops touch, and ops have only those as operands. Needs a shown profile.
Trace simulated_trace(const Run&);
// The run's machine as the session had it: its budget is the fast tier, and what it moves are its chunks, or whole
// tensors. Needs a tier.
Machine machine_of_session(const Run&);
Headline headline_of(const Run&, const ReportOptions&);
Waterfall waterfall_of(const Run&, const Headline&, const Noise& = {});
// None where something disturbed the run: the differences that a change makes are not told from noise.
Advised advised_of(const Run&, const ReportOptions&, const Waterfall&, const Noise& = {});
// The same step with each parameter updated as soon as its gradient is complete; nullopt: its optimizer runs no
// operators, or they use the gradients of several parameters, or nothing would run earlier.
std::optional<Trace> updated_early(const Trace&);
// The quartiles of both runs overlap, so that none can be called the faster.
bool alike(const Headline&, const Headline&) noexcept;
Memory memory_of(const Run&);
Heat heat_of(const Run&, const ReportOptions&);
std::vector<LayerRow> layers_of(const Run&, const Heat&);
std::vector<TensorRow> tensors_of(const Run&);
ShortLived short_lived_of(const Trace&);
Sharing sharing_of(const Run&);
Reuse reuse_of(const Run&, const ReportOptions&);
PriceList prices_of(const Run&, const ReportOptions&, const std::vector<TensorRow>&);
// Bytes that a step fetches when ops wait for their operands and the least recently used tensors leave, in the state
// that repeats; nullopt: an op has more operands and scratch than the capacity. O(accesses * log(tensors)).
std::optional<Bytes> lru_fetches(const Trace&, Bytes capacity);
PlanFigures plan_of(const Run&);
Recomputed recomputed_of(const Run&);
Timeline timeline_of(const Run&);
Noise noise_of(const Run&, const Headline&);
Energy energy_of(const Run&);
Wear wear_of(const Run&, const ReportOptions&);
std::vector<Followed> followed_by(const Run&);
Overhead overhead_of(const Run&);

// Keeps as many tensors as a page can show: those that moved most, then the largest, and those at which a row of the
// heat map begins or ends.
void shorten(Report&, std::size_t most);

std::string_view name_of(Warmth) noexcept;
std::string_view name_of(Lost) noexcept;  // "operators", "late fetch", "no room", "write", "fault"
std::string_view name_of(Change) noexcept;

struct Beside;  // profiler/report/beside.h
// One object, docs/report.md. `other`: to compare with; `beside`: of the two, where these reports lack tensors.
std::string format_json(const Report&, const Report* other, const Beside* beside = nullptr);
std::string format_text(const Report&, const Report* other);  // for terminals: nothing in it controls one
std::string format_page(const Report&, const Report* other);  // a whole HTML document, of 20,000 tensors at most
bool page_has_charts() noexcept;                              // false: built without the charts' library

}  // namespace vedette::report
