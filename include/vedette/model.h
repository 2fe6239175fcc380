// The three values that all layers share: Trace (the ops and tensors of one step), Machine (its tiers and links), and
// Plan (the moves of that step). Plain data without clock, thread or kernel: tests build them by hand.
//
// A step repeats: op 0 follows the last op, and persistent tensors keep their bytes across that boundary. Any other
// tensor is born at its first write. It dies after its last access, or after the op that has it in `frees`.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

enum class TensorKind : std::uint8_t { weight, gradient, optimizer, activation, workspace, input, constant };
enum class Phase : std::uint8_t { forward, backward, optimizer };

// The place of an allocation; empty: before the first step, or outside of any layer or op.
struct Site {
  std::string layer, op;
  bool operator==(const Site&) const = default;
};

struct Tensor {  // a storage
  std::string name;
  Bytes bytes;
  TensorKind kind = TensorKind::activation;
  bool persistent = false;
  // the shape of the tensor that fills the storage; empty: not known. vedette-trace-1 has no `site`
  std::vector<std::int64_t> shape;
  Site site;
  bool operator==(const Tensor&) const = default;
};

struct Layer {  // a named run of ops in one phase
  std::string name;
  Phase phase = Phase::forward;
  bool operator==(const Layer&) const = default;
};

struct Op {
  std::string name;
  std::optional<LayerIndex> layer;
  Phase phase = Phase::forward;
  Nanoseconds time;                 // alone, with every operand in the fastest tier
  Bytes workspace;                  // scratch memory that lives only during the op, not in `tensors`
  std::vector<TensorIndex> reads;   // sorted, unique; a tensor in both lists is changed in place
  std::vector<TensorIndex> writes;  // sorted, unique
  // sorted, unique: tensors that die after this op
  std::vector<TensorIndex> frees;
  // whether running it again was tried and gave the same bytes; nullopt: not tried, its name has to tell
  std::optional<bool> runs_again = {};
  bool operator==(const Op&) const = default;
};

// A result of page tracking: the pages of one tensor that one op touched. At ticks of layers it is those that a run of
// ops of one layer touched, and `op` is the last of them. Page numbers count from the tensor's first byte.
struct PageAccess {
  OpIndex op;
  TensorIndex tensor;
  Span<std::uint64_t> pages;           // in units of Trace::page_bytes
  bool read = false, written = false;  // a written page may have been read as well, whatever `read` says
  bool operator==(const PageAccess&) const = default;
};

struct Trace {  // one training step
  std::string name, source, device;
  std::vector<std::string> notes;
  std::vector<Tensor> tensors;
  std::vector<Layer> layers;
  std::vector<Op> ops;  // in execution order
  Bytes page_bytes = {4096};
  std::vector<PageAccess> pages;  // sorted by (op, tensor, pages); empty when nothing was tracked
  bool operator==(const Trace&) const = default;
};

struct Tier {
  std::string name;  // "dram", "nvme", "gpu"
  Bytes capacity;
  // loads and stores of the program reach this tier (a NUMA node), so operands may stay there
  bool addressable = false;
  bool disk = false;  // writes wear it out; of tiers named "nvme" or "ssd" that is known
  bool is_disk() const noexcept { return disk || name == "nvme" || name == "ssd"; }
  bool operator==(const Tier&) const = default;
};

struct Link {  // one per ordered pair of tiers that bytes can travel
  TierIndex source, target;
  std::uint64_t bytes_per_s = 0;  // 0: no limit
  Nanoseconds latency;            // of one move, before its first byte
  // Links with the same number share one bus: both directions of a half-duplex disk, or host and disk behind one PCIe
  // link. The bus has the bandwidth of its fastest link. While several links are busy each gets its fair share, at most
  // its own bandwidth.
  std::optional<std::uint32_t> shared;
  // Bandwidth when the other direction of the shared bus is idle. 0 means the same as bytes_per_s.
  std::uint64_t alone_bytes_per_s = 0;
  bool operator==(const Link&) const = default;
};

constexpr bool share_a_bus(const Link& a, const Link& b) noexcept { return a.shared && a.shared == b.shared; }

// The memory of the host as one more limit: the links from and to its tier, and the processor's own work, have its
// bandwidth together. The processor takes its part first. A byte that a link moves is a byte of it, either way.
struct HostMemory {
  TierIndex tier;                           // where it lies; links that do not touch this tier take none of it
  std::uint64_t bytes_per_s = 0;            // of all together; 0: no limit
  std::uint64_t processor_bytes_per_s = 0;  // less than all: what the processor's own work takes of it all the time
  bool operator==(const HostMemory&) const = default;

  bool limits(const Link& link) const noexcept {
    return bytes_per_s != 0 && (link.source == tier || link.target == tier);
  }
  // Bytes a second of all links together, where there is a limit.
  std::uint64_t left_for_links() const noexcept {
    return bytes_per_s > processor_bytes_per_s ? bytes_per_s - processor_bytes_per_s : 1;
  }
};

// How the executor of a machine carries out a plan's moves, beyond the words of the plan. Default: as they are issued.
struct Habits {
  bool early_fetches = false;  // a fetch may start while the op before its issue runs, in room that this op leaves free
  bool writes_wait = false;    // evictions wait while a fetch runs or could start, until room is scarce
  bool plans_in_turns = false;  // steps of other plans come between: what all have near as a step begins does not move
  bool operator==(const Habits&) const = default;
};
inline constexpr Habits habits_of_sessions{.early_fetches = true, .writes_wait = true};

// A planner's interference_percent where the machine gives none: of ResNet-18's 400 ms of transfers beside a step, 90
// to 130 ms came on top of the computation (docs/tried.md).
inline constexpr std::uint32_t default_interference_percent = 25;

// Ops of this name take longer by operands that lie in slower memory: by so many percent of the time in which links
// would carry the bytes. Arithmetic hides a part of it; many small accesses cost more.
struct InPlacePrice {
  std::string op;
  std::uint32_t percent = 100;
  bool operator==(const InPlacePrice&) const = default;
};

struct Machine {
  std::vector<Tier> tiers;  // fastest first
  std::vector<Link> links;
  Nanoseconds fault_time;  // added once to an op that faults, without the transfers
  Bytes granule = {4096};  // a move occupies a multiple of this in the fast tier
  bool can_recompute = false, can_reorder = false;
  bool whole_tensors = false;  // a move takes a tensor as a whole: no plan may name a part of one
  // The share of a link's busy time by which ops beside it become longer: transfers take memory bandwidth and processor
  // time. nullopt: not measured. A replay then adds nothing, and a planner counts default_interference_percent.
  std::optional<std::uint32_t> interference_percent = {};
  // added to the ops for each granule that comes to the fastest tier or leaves it alive: its pages are mapped anew
  Nanoseconds remap_time = {};
  Habits habits = {};
  HostMemory host_memory = {};
  std::vector<InPlacePrice> in_place_prices = {};  // as measured, sorted by op; ops of other names: 100 %
  bool operator==(const Machine&) const = default;

  const Link* link(TierIndex source, TierIndex target) const noexcept;
  std::uint32_t in_place_percent(std::string_view op) const noexcept;
  // By so much an op of this name takes longer that reads and writes so many bytes where they lie.
  Nanoseconds time_in_place(std::string_view op, TierIndex tier, Bytes read, Bytes written) const noexcept;
};

struct Extent {  // bytes [begin, end) of a tensor; the whole tensor by default
  TensorIndex tensor;
  std::optional<Span<Bytes>> part;
  bool operator==(const Extent&) const = default;
};

enum class Verb : std::uint8_t {
  fetch,  // to a faster tier
  evict,  // to a slower tier; costs no transfer when that tier still has the same bytes
  drop,   // forget the bytes: no op reads them before they are written again
};

// The order around op i:
//   1. moves with due == i have ended;
//   2. fetches with issue == i start, and op i waits for those with due == i;
//   3. op i runs;
//   4. the tensors in its `frees` die, and evicts and drops with issue == i start.
// So op i waits for a fetch with issue == due == i. An evict with issue i and due i + 1 has given its room back when op
// i + 1 begins. Until its due a move occupies both tiers, and its tensor is on its way: no op may use it, not even one
// that begins before an eviction is due. A dropped tensor is born again in the fastest tier at its next write that is
// no read.
struct Move {
  OpIndex issue;  // may start when this op has ended (evict, drop) or begins (fetch)
  OpIndex due;    // must be done before this op begins; smaller than `issue` means in the next step
  Extent extent;
  TierIndex source, target;
  Verb verb = Verb::fetch;
  bool operator==(const Move&) const = default;
};

struct InPlace {  // an operand that the op uses where it lies, in an addressable slower tier
  OpIndex op;
  TensorIndex tensor;
  TierIndex tier;
  bool operator==(const InPlace&) const = default;
};

// `producer` runs again before op `before`, to recompute `tensor`, which was dropped or has died. Recomputations of one
// op run in the order of the list, after the fetches due there; consecutive ones of one producer share one run. The
// producer's operands must be in the fastest tier with the bytes that it first read; its other results are scratch. A
// recomputed tensor whose life has ended lives until op `before` begins. Where the producer changed the tensor in
// place, the chain of ops since the tensor was made runs, as one producer (model/producers.h).
struct Recomputation {
  OpIndex before, producer;
  TensorIndex tensor;
  bool operator==(const Recomputation&) const = default;
};

enum class Fallback : std::uint8_t {  // the victim when an op lacks room and neither plan nor policy names one
  furthest,                           // the tensor whose next use is furthest away (Belady)
  least_recent,                       // the tensor whose last use is longest ago
};

enum class AfterLife : std::uint8_t {  // of the bytes of dead tensors
  freed,                               // their room is free at once
  dropped,  // they keep their room until another tensor needs it, and leave without a transfer
  // as under unified memory whose driver knows no lifetimes: writing a dead tensor again fetches it first, and evicting
  // it costs a transfer, changed or not
  kept,
};

// A driver below the program pages, as the one that G10's artifact simulates: ops fault, the oldest block leaves, and a
// policy's moves are hints, of births as well. Such a plan names its `block` and has no moves of its own.
struct Paging {
  // blocks that were prefetched displace none that the next `window` ops use
  std::uint32_t window = 0;
  bool operator==(const Paging&) const = default;
};

struct Plan {                   // for a step that repeats: its end leaves tensors in the tiers where its start has them
  std::vector<TierIndex> home;  // home[t]: the tier where t is when op 0 begins (persistent) or is born in
  std::vector<Move> moves;      // sorted by issue; moves with the same issue start in this order
  std::vector<InPlace> in_place;
  std::vector<Recomputation> recomputations;
  // A permutation of the ops, by which they run; empty: as traced. Beside it every OpIndex of the plan counts places in
  // it. Two ops keep their order where one writes what the other reads, writes or frees. Random ops, those with
  // statistics and collectives, by their names, keep theirs to each other. Nothing passes an op that writes nothing and
  // is no view. A tensor that is freed dies after the last of its accesses and of the op that frees it.
  std::vector<OpIndex> order;
  Bytes reserved;  // bytes of the fastest tier that prefetching leaves to short-lived tensors
  // The fields below describe systems that know less than a planner; the judge ignores them.
  Fallback fallback = Fallback::furthest;
  AfterLife after_life = AfterLife::freed;
  // slower tiers keep no copy of a fetched tensor, so each eviction costs a transfer
  bool one_copy = false;
  // unplanned moves take tensors in blocks of this size (unified memory: 2 MiB); 0: whole
  Bytes block;
  // ops that wait for every eviction issued so far, whether they need its room or not
  std::vector<OpIndex> barriers;
  std::optional<Paging> paging;  // the driver chooses the victims; only in replays
  // why the policy decided so, a sentence each: for recordings, nothing depends on it
  std::vector<std::string> reasons;
  bool operator==(const Plan&) const = default;
};

// Whether running the op again gives the same bytes: it changes nothing in place, and was tried, or its name is not
// known to be random (dropout) or to update hidden statistics (batch normalisation). Of an op in place ask the producer
// that it ends (model/producers.h).
bool replayable(const Op&);

// Largest sum of the bytes live during one op, workspace included. O(accesses).
Bytes peak_bytes(const Trace&);

// Largest sum of operands and workspace of one op: no budget below it can run the step unpaged.
Bytes largest_op_bytes(const Trace&);

// The same step with each op's workspace as a tensor of its own, which the op writes and which dies with it. CUDA's
// unified memory knows of no workspaces and sees the step so. Tensors keep their numbers, the new ones follow in order
// of their ops.
Trace workspaces_as_tensors(Trace);

// First and last op that access the tensor, nullopt if none does.
std::vector<std::optional<Span<OpIndex>>> lifetimes(const Trace&);  // [first, last + 1)

// vedette-trace-1, the JSON of one step. Errors are Cause::malformed_input and name the place.
Result<Trace> parse_trace(std::string_view json);
// the same trace, parse_trace(format_trace(t)) == t but for unused layers, pages and sites
std::string format_trace(const Trace&);

}  // namespace vedette
