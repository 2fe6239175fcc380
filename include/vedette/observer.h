// The interface through which engine and session report events while they happen; the recorder in profiler/ implements
// it.
//
// Thread rule: moved(), stalled() and faulted() come from any thread, one at a time, while the engine holds its lock.
// recomputed() comes from any thread, one at a time, with no lock of engine or session held. All others come from the
// thread that announces steps and ops. The three groups may overlap. A GPU session reports steps, ops, moves and stalls
// when their times are known: in order, later than they are announced, the last ones when the session ends.
// Implementations copy into memory that they already own and return: no exception, no lock that an allocation may hold,
// and no allocation in moved(), stalled() and faulted().
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "vedette/model.h"
#include "vedette/units.h"

namespace vedette {

enum class MoveCause : std::uint8_t {
  planned,  // the plan had it
  urgent,   // an op or a fault waits for it
  room,     // another chunk needs the frame, and no plan made room
};

struct MoveRecord {
  Verb verb = Verb::fetch;
  MoveCause cause = MoveCause::planned;
  std::uint8_t slow = 1;    // the slow tier that the bytes went to or came from, by its index
  std::uint64_t chunk = 0;  // of the arena; of memory that moves whole tensors, a tensor's first one
  Bytes bytes;
  Nanoseconds issued, started, ended;  // on the clock of `now` below
};

struct StallRecord {
  std::uint64_t step = 0;
  OpIndex op;
  bool in_allocation = false;  // waiting for room, not for an operand
  Nanoseconds began, ended;
};

struct FaultRecord {
  std::uint64_t step = 0;
  OpIndex op;
  std::uint64_t chunk = 0;
  std::uint64_t page = 0;  // of the chunk, 4 KiB each
  bool write = false;
  Nanoseconds began, ended;
};

struct RecomputeRecord {  // chunks that had been dropped together, and are there again
  std::uint64_t step = 0;
  OpIndex op;                           // that ran or began then
  std::uint32_t chunk = 0, chunks = 0;  // of the arena: from `chunk` on so many
  std::uint32_t ops = 0;                // that ran again for them
  Nanoseconds began, ended;             // waits for room and for operands included
};

struct Placed {             // the addresses of a tensor or a unit in the arena
  std::uint32_t index = 0;  // of the trace it is in
  Bytes offset, bytes;
};

// Memory of a GPU that this process holds, and of the host for copies, in bytes, as counters were asked for. Zeros
// where fast memory is the machine's.
struct GpuBytes {
  Bytes on_device;    // in all: the budget, memory for tables, and what lies beside
  Bytes beside;       // the budget: libtorch's own memory, what it keeps free included; the context
  Bytes most_beside;  // when it was asked, or an operator took more
  Bytes large;        // of `beside`: pieces for which the budget had no room
  Bytes pools;        // ... of CUDA graphs, and MemPools
  Bytes workspaces;   // ... of cuBLAS, which libtorch keeps
  Bytes context;      // ... of CUDA, by NVML; 0: it does not know this process
  Bytes locked;       // of the host: pinned for copies
  Bytes in_locked;    // ... of which tensors have so much
  Bytes most_locked;  // its limit, as SessionOptions::slow or the driver has it; 0: none
  Bytes pageable;     // of the host: behind it, where the driver locked no more
  bool operator==(const GpuBytes&) const = default;
};

struct Counters {                            // since the session opened, or of one step
  Bytes bytes_in, bytes_out, bytes_dropped;  // fetched, written out, evicted without writing
  // With two slow tiers: of the above, the bytes to and from the far one; and bytes that went from the near to the far
  // one without passing fast memory.
  Bytes far_bytes_in, far_bytes_out, moved_between_slow_tiers;
  Bytes disk_bytes_out;                         // written to a disk, if a tier is one
  Bytes bytes_in_place;                         // of operands that ops used where they lay, in slower memory
  std::uint64_t stall_count = 0, stall_ns = 0;  // waiting for operands, and for room in allocations
  std::uint64_t faults = 0;                     // accesses that no op announced
  // chunks that were dropped and recomputed, by how many runs of ops in how much time
  Bytes bytes_recomputed;
  std::uint64_t ops_recomputed = 0, recompute_ns = 0;
  Bytes live_bytes, peak_bytes;              // arena, each allocation rounded up to 64
  Bytes resident_bytes, resident_max_bytes;  // frames in use, in-flight buffers included
  std::uint64_t steps = 0, ops = 0;
  // from the begin of the first step to the end of the last; 0 in those of one step
  std::uint64_t elapsed_ns = 0;
  GpuBytes gpu;  // now
  bool operator==(const Counters&) const = default;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void opened(const Machine&, std::string_view /*policy*/, Bytes /*budget*/, Bytes /*chunk*/) {}
  virtual void moves_by(std::string_view /*mechanism*/) {}  // Session::mechanism(); called after opened()
  // SessionOptions::max_writes bounds what is written to the disk in a second, below what the disk takes. Called before
  // opened().
  virtual void writes_bounded(Bytes /*a_second*/, Bytes /*a_second_without*/) {}
  // Fast memory has another size from the next step on.
  virtual void resized(Nanoseconds /*now*/, Bytes /*budget*/) {}
  virtual void step_began(std::uint64_t /*step*/, Nanoseconds /*now*/) {}
  virtual void step_ended(std::uint64_t /*step*/, Nanoseconds /*now*/, const Counters& /*of_this_step*/) {}
  // One bucket's profile is complete: the trace of its step, page accesses included where they were tracked.
  virtual void profiled(std::uint64_t /*step*/, std::uint64_t /*bucket*/, const Trace&) {}
  virtual void planned(std::uint64_t /*step*/, std::uint64_t /*bucket*/, const Trace& /*units*/, const Plan&) {}
  // The addresses of the units of planned()'s trace and of the tensors of profiled()'s. Called before planned().
  virtual void placed(std::uint64_t /*step*/, std::uint64_t /*bucket*/, std::span<const Placed> /*units*/,
                      std::span<const Placed> /*tensors*/) {}
  // Called before step_ended(): `phase` as Session::phase(), and the bucket whose sequence of ops the step ran to its
  // end.
  virtual void step_ran(std::uint64_t /*step*/, std::string_view /*phase*/, std::optional<std::uint64_t> /*bucket*/) {}
  // Resident and live bytes when an op ends. Called before op_ended().
  virtual void sampled(std::uint64_t /*step*/, OpIndex, Bytes /*resident*/, Bytes /*live*/) {}
  virtual void op_began(std::uint64_t /*step*/, OpIndex, std::string_view /*name*/, Nanoseconds /*now*/) {}
  virtual void op_ended(std::uint64_t /*step*/, OpIndex, Nanoseconds /*now*/) {}
  virtual void moved(const MoveRecord&) {}
  virtual void stalled(const StallRecord&) {}
  virtual void faulted(const FaultRecord&) {}
  virtual void recomputed(const RecomputeRecord&) {}
};

}  // namespace vedette
