// The three values everything here speaks: what the program did in one step (Trace), what it ran on (Machine), and what
// we decided (Plan). Plain data, no clock, no thread, no kernel: build them by hand in a test.
//
// A step repeats: op 0 follows the last op, persistent tensors keep their bytes across that seam. A non-persistent
// tensor is born at its first write and dies after its last access, or after the op that has it in `frees`.
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

struct Site {  // where a tensor was allocated; empty: before the first step, or outside of any layer or op
  std::string layer, op;
  bool operator==(const Site&) const = default;
};

struct Tensor {  // a storage
  std::string name;
  Bytes bytes;
  TensorKind kind = TensorKind::activation;
  bool persistent = false;
  std::vector<std::int64_t>
      shape;  // as the program sees the whole of it; empty: not known. Not in vedette-trace-1, nor is `site`
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
  std::vector<TensorIndex>
      frees;  // sorted, unique: dead after this op, although a later op may seem to need it no more
  bool operator==(const Op&) const = default;
};

// What page tracking saw: the pages of one tensor that one op touched, or one layer (consecutive ops of it; `op` is the
// last of them). Page numbers count from the tensor's first byte.
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
  bool addressable = false;  // the program's loads and stores reach it (a NUMA node), so operands may stay there
  bool operator==(const Tier&) const = default;
};

struct Link {  // one per ordered pair of tiers that bytes can travel
  TierIndex source, target;
  std::uint64_t bytes_per_s = 0;  // 0: no limit
  Nanoseconds latency;            // of one move, before its first byte
  // Links with the same number share one bus, whose bandwidth is that of the fastest of them: both directions of a
  // half-duplex bus, or host and disk behind one PCIe link. While several are busy each gets its fair share, and no
  // more than its own.
  std::optional<std::uint32_t> shared;
  // Where bytes_per_s is only this link's share of such a bus, as a session tells its policy: what it carries while the
  // other rests. 0: bytes_per_s.
  std::uint64_t alone_bytes_per_s = 0;
  bool operator==(const Link&) const = default;
};

constexpr bool share_a_bus(const Link& a, const Link& b) noexcept { return a.shared && a.shared == b.shared; }

struct Machine {
  std::vector<Tier> tiers;  // fastest first
  std::vector<Link> links;
  Nanoseconds fault_time;  // what unannounced accesses of away pages cost an op, once, without the transfers
  Bytes granule = {4096};  // a move occupies a multiple of this in the fast tier
  bool can_recompute = false, can_reorder = false;
  // Of the time that a link is busy while an op runs, so much comes on top of the op's: transfers take memory bandwidth
  // and a core's time. A replay adds it. nullopt: nobody says, as live; then a replay adds nothing, and a planner takes
  // what it knows of live runs.
  std::optional<std::uint32_t> interference_percent = {};
  Nanoseconds remap_time = {};  // what each granule that comes to the fastest tier or leaves it alive costs the
                                // program, which maps its pages anew
  bool operator==(const Machine&) const = default;

  const Link* link(TierIndex source, TierIndex target) const noexcept;
};

struct Extent {  // bytes [begin, end) of a tensor; the whole tensor by default
  TensorIndex tensor;
  std::optional<Span<Bytes>> part;
  bool operator==(const Extent&) const = default;
};

enum class Verb : std::uint8_t {
  fetch,  // to a faster tier
  evict,  // to a slower tier; costs no transfer when that tier still has the same bytes
  drop,   // forget the bytes: nobody reads them before they are written again
};

// At the boundary before op i: moves due at i are done, then fetches issued at i start, those with due == i are waited
// for, op i runs, then what it frees dies and evicts and drops issued at i start. So a fetch with issue == due is one
// the op waits for; an evict with issue i and due i + 1 has its room back when op i + 1 begins. Until its due a move
// occupies both tiers, and its tensor counts as being at the source. A tensor that was dropped is born again in the
// fastest tier at its next pure write.
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

// `producer` runs again before op `before`, to make `tensor` again, which was dropped or has died. Those of one op run
// in the order of the list (after the fetches due there); consecutive ones of one producer share one run. The
// producer's operands must be in the fastest tier with the bytes it first read; its other results are scratch. What has
// died by then lives until op `before` begins.
struct Recomputation {
  OpIndex before, producer;
  TensorIndex tensor;
  bool operator==(const Recomputation&) const = default;
};

enum class Fallback : std::uint8_t {  // who leaves when an op lacks room and no plan or policy says who
  furthest,                           // what is used next in the furthest future (Belady)
  least_recent,                       // what was used longest ago
};

enum class AfterLife : std::uint8_t {  // what happens to the bytes of the dead
  freed,                               // their room is free at once
  dropped,  // they keep their room until somebody else needs it, and leave without a transfer
  kept,     // as under unified memory whose driver is told nothing: all tensors live for ever, being written
            // again fetches them first, and leaving costs a transfer, changed or not
};

// A driver below the program pages, as the one that G10's artifact simulates: ops fault, who arrived first leaves, and
// a policy's moves are hints, of births as well. Such a plan names its `block` and has no moves of its own.
struct Paging {
  std::uint32_t window =
      0;  // what was asked for ahead displaces nothing that this many ops from the one at hand on use
  bool operator==(const Paging&) const = default;
};

struct Plan {                   // for a step that repeats; what is resident at its end is resident at its start
  std::vector<TierIndex> home;  // home[t]: the tier where t is when op 0 begins (persistent) or is born in
  std::vector<Move> moves;      // sorted by issue; moves with the same issue start in this order
  std::vector<InPlace> in_place;
  std::vector<Recomputation> recomputations;
  std::vector<OpIndex> order;  // empty: as traced
  Bytes reserved;              // bytes of the fastest tier that prefetching leaves to short-lived tensors
  // What holds for systems that know less than a planner; the judge ignores it.
  Fallback fallback = Fallback::furthest;
  AfterLife after_life = AfterLife::freed;
  bool one_copy = false;  // a fetch takes the bytes along: slower tiers keep no copy, so leaving again costs a transfer
  Bytes block;            // unplanned moves take tensors in blocks of this size (unified memory: 2 MiB); 0: whole
  std::vector<OpIndex>
      barriers;  // ops that begin when every eviction issued so far has ended, whether they need its room or not
  std::optional<Paging> paging;  // the driver decides who leaves; only in replays
  std::vector<std::string>
      reasons;  // why the policy decided so, a sentence each: for recordings, nothing depends on it
  bool operator==(const Plan&) const = default;
};

// Whether running the op again gives the same bytes: it changes nothing in place, and its name is not known to be
// random (dropout) or to update hidden statistics (cuDNN's batch normalisation).
bool replayable(const Op&);

// Largest sum of the bytes live during one op, workspace included. O(accesses).
Bytes peak_bytes(const Trace&);

// Largest sum of operands and workspace of one op: no budget below it can run the step unpaged.
Bytes largest_op_bytes(const Trace&);

// The same step with each op's workspace as a tensor of its own, which the op writes and which dies with it: what a
// driver sees that knows of no workspaces (CUDA's unified memory). Tensors keep their numbers, the new ones follow in
// order of their ops.
Trace workspaces_as_tensors(Trace);

// First and last op that access the tensor, nullopt if none does.
std::vector<std::optional<Span<OpIndex>>> lifetimes(const Trace&);  // [first, last + 1)

// vedette-trace-1, the JSON of one step. Errors are Cause::malformed_input and name the place.
Result<Trace> parse_trace(std::string_view json);
std::string format_trace(const Trace&);  // the same trace, parse_trace(format_trace(t)) == t but for layers nobody
                                         // uses, pages, shapes and sites

}  // namespace vedette
