// The executor of GPU memory: each tensor is a block of the place executor (names.h). A plan says where a block lies
// (moves/planned_places.h), when it leaves for pinned host memory and when it comes back.
//
// A step that follows its plan begins with every block where the plan has it. After a step that did not, or under
// another plan, begin_op() of the first op puts them there.
//
// Thread rule: as Executor's; the device's context is current in each thread. Its lock is taken behind the session's.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cuda/pinned_pool.h"
#include "gpu/device_reports.h"
#include "gpu/names.h"
#include "gpu/place_executor.h"
#include "gpu/stream_times.h"
#include "gpu/tables.h"
#include "moves/executor.h"
#include "moves/scratch.h"
#include "tier/link_habits.h"
#include "vedette/gpu.h"

namespace vedette::detail {

class GpuExecutor final : public Executor, public GpuMemory, public Scratch, private PlaceExecutor::Owner {
 public:
  struct Options {
    Bytes budget;                                      // of device memory, of which operands and results take part
    Bytes most;                                        // after resize(); 0: `budget`
    Bytes host;                                        // of pinned memory; 0: without limit
    bool disk = false;                                 // there is one below it, tier 2
    const std::byte* arena = nullptr;                  // names begin here
    Bytes chunk;                                       // of names
    GpuProgram* program = nullptr;                     // borrowed
    std::shared_ptr<DeviceReports> reports = nullptr;  // nullptr: there is no observer
    Bytes tables;                                      // of device memory beside the budget; 0: there are none
    Bytes unit = {512};                                // of places
    bool managed = false;                              // the device's memory (cuda/managed_tracker.h)
    LinkSpeed link = {};                               // to pinned memory; 0: not known
    std::function<void(std::string_view)> say = {};    // posts a sentence
  };
  static Result<std::unique_ptr<GpuExecutor>> make(std::shared_ptr<const cuda::Device> device, Options options,
                                                   std::unique_ptr<DiskThread> disk = nullptr);

  // Refused: options that memory on a GPU cannot have. A drop is executed as an eviction, as on the CPU.
  Result<void> accepts(const Plan& plan) const override;
  std::optional<Bytes> range() const noexcept override { return budget(); }
  Bytes budget() const noexcept override;
  Result<Resized> resize(Bytes budget, Caller caller) override;  // executor_memory.cc
  void end_resizing() noexcept override;
  std::string bus_id() const override { return device_->bus_id(); }
  Stretch range_of_plans() const noexcept override;
  void will_leave(std::span<const Leaving> tensors) noexcept override;

  Result<void> born(ChunkRange chunks, Bytes bytes) override;
  Result<void> born_as_copy(ChunkRange chunks, Bytes bytes, std::uint64_t from) override;
  void died(ChunkRange chunks) noexcept override;
  Result<void> hold(ChunkRange chunks) override;
  void release_hold(ChunkRange chunks) noexcept override;
  // The range stays mapped while tensors live: it takes nothing from the budget of a session of the machine's memory.
  std::uint32_t wind_down(std::uint32_t) noexcept override { return 0; }

  void begin_step(std::uint64_t step) override;
  // Where the operands have no room, the program releases some of them, or leaves the op out (GpuProgram::no_room).
  void begin_op(OpIndex op, std::string_view name, const Part& part) override;
  void continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                   const std::function<void()>& between) override;
  void end_op(std::span<const OpMoves::Departure> departures) noexcept override;
  void forget_plan() noexcept override;

  // executor_memory.cc
  bool may_rest() const noexcept override;
  void begin_rest() noexcept override;
  void end_rest() noexcept override;

  Scratch* scratch() noexcept override { return this; }
  void observe(std::span<const ChunkRange>) noexcept override {}
  bool was_touched(ChunkRange) const noexcept override { return true; }
  std::uint64_t early_touches() const noexcept override { return 0; }

  Program& program() noexcept override { return host_program(); }
  Nanoseconds stalled_since_last_asked() noexcept override { return {}; }  // the device stalls, not the host
  std::optional<StepTimes> take_times(bool wait) noexcept override;
  Counters counters() const noexcept override;
  GpuBytes gpu_bytes() noexcept override;
  std::optional<Error> take_error() noexcept override;
  std::uint32_t held_chunks() const noexcept override;
  std::uint32_t largest_op_chunks() const noexcept override;
  std::string mechanism() const override;
  void set_observer(Observer* observer) noexcept override;  // nullptr; it is told everything before
  GpuMemory* gpu() noexcept override { return this; }

  // --- Scratch: a piece is a block, where the plan has it or else where the dropped one lay (executor_scratch.cc)
  bool queues_recipes() const noexcept override { return true; }
  bool drop(ChunkRange chunks) noexcept override;
  bool is_dropped(ChunkIndex) const noexcept override { return false; }  // no thread waits for one
  bool take_piece(Piece& piece) override;
  void give_back_piece(const Piece& piece) noexcept override { died(piece.chunks); }
  void adopt_piece(const Piece& from, ChunkRange to) noexcept override;
  void come(const Part& part) override;
  bool begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) override;
  void end_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) noexcept override;
  void begin_aside(Aside what) noexcept override;
  void end_aside() noexcept override;
  bool spoil(const Piece& piece) override;
  bool same_bytes(const Piece& piece) override;

  // --- GpuMemory
  DeviceAddress address(const void* name) const noexcept override;
  void allow_moves(const void* name) noexcept override;
  void forbid_moves(const void* name) noexcept override;
  Result<void> copy_to(const void* name, DeviceAddress to) override;
  void will_be_captured() noexcept override;
  void used_on(const void* name, void* stream) noexcept override;
  GpuMemory::Range memory() const noexcept override;
  bool is_table(std::uint64_t bytes) const noexcept override {
    return tables_ != nullptr && bytes > options_.tables.value && bytes > options_.budget.value / 2;
  }
  Result<GpuTable> allocate_table(std::uint64_t bytes) override { return tables_->allocate({bytes}); }
  void looked_up(const GpuLookup& lookup, void* stream) noexcept override;
  GpuTableCounters tables() const noexcept override {
    return tables_ == nullptr ? GpuTableCounters() : tables_->counters();
  }
  std::vector<GpuMemory::HotPart> table_parts() const override {
    return tables_ == nullptr ? std::vector<GpuMemory::HotPart>() : tables_->hot_parts();
  }

 private:
  Stretch movable() const noexcept;
  Bytes largest_op() const noexcept;
  Result<Resized> resize_now(Bytes budget, Bytes least);
  void take_pending_size();
  using BlockIndex = PlaceExecutor::BlockIndex;
  struct Hold {
    BlockIndex block;
    cuda::StreamHandle stream = nullptr;
    std::vector<cuda::StreamHandle> others;  // of threads that came later
    std::uint32_t count = 0;
  };
  using Holds = std::unordered_multimap<std::uint32_t, Hold>;  // by first chunk

  GpuExecutor(std::shared_ptr<const cuda::Device> device, const Options& options);
  // These seven with the lock held.
  bool may_move(BlockIndex block) noexcept override;
  void moved(BlockIndex block, cuda::Address address) noexcept override;
  void begins(const PlaceExecutor::Transfer& transfer) noexcept override;
  void is_queued(const PlaceExecutor::Transfer& transfer) noexcept override;
  void wait_begins(HostSlots::WaitsFor what) noexcept override;
  void wait_ends() noexcept override;
  void pins_no_more(Bytes limit, bool there_is_a_disk) noexcept override;
  cuda::StreamHandle stream() const noexcept;
  PlaceExecutor::Place place_of_birth(ChunkRange chunks) const;
  void restore(const PlannedPlaces& places, const StepStart* start);
  void bring(const OpMoves& moves);
  void prepare(const Part& part);
  void find_operands(const Part& part);
  Result<bool> pin_operands(OpIndex op, const Part& part);
  bool pin_fewer_operands(OpIndex op, std::string_view name, const Part& part, Error error,
                          std::unique_lock<std::mutex>& lock);
  void expect(const Part& part);
  PlaceExecutor::Ends ends_of(OpIndex op) const noexcept;
  PlaceExecutor::Place place_like(ChunkRange like) const;
  std::vector<BlockIndex> blocks_of(std::span<const ChunkRange> some, std::span<const ChunkRange> others) const;
  Result<std::byte*> staging();
  Result<bool> same_on_the_host(const BlockIndex (&both)[2], Bytes bytes);
  void note(const Result<void>& result);
  void wake();

  const std::shared_ptr<const cuda::Device> device_;
  const Options options_;
  std::unique_ptr<GpuTables> tables_;  // nullptr: there are none
  std::unique_ptr<PlaceExecutor> places_;
  mutable std::mutex mutex_;  // over all that follows
  Names names_;
  struct {
    Holds of_the_living, of_the_dead;  // those of the dead end later than their tensors
  } holds_;
  struct {
    std::uint32_t held = 0, largest_op = 0;
    std::uint32_t of_op = 0;  // of the running op's operands and births
  } chunks_;
  StreamTimes times_;
  const PlannedPlaces* planned_ = nullptr;   // of the running step
  const PlannedPlaces* before_ = nullptr;    // of the step before
  const PlannedPlaces* followed_ = nullptr;  // the same where all lay so; nullptr: blocks may lie anywhere
  std::uint64_t misplaced_ = 0;              // when the running step began
  bool step_is_new_ = false, op_runs_ = false;
  bool is_woken_ = false;  // its rest ends when an op is announced: one that was not may be about to queue its work
  std::vector<BlockIndex> operands_;  // of the running op
  struct {                            // at one op
    std::vector<PlaceExecutor::Coming> coming;
    std::vector<PlaceExecutor::Leaving> leaving;
    std::vector<PlaceExecutor::Few> few;  // at the end of operands_
  } moves_;
  struct {  // of a step without a plan
    bool known = false;
    std::vector<moves::NextUses<BlockIndex>::Use> uses;
    std::vector<PlaceExecutor::Expected::Fetch> fetches;
  } ahead_;
  cuda::StreamHandle op_stream_ = nullptr;
  std::uint64_t ops_ = 0;
  std::span<const OpMoves::Made> made_;  // before the part that runs, by the plan
  struct Staging {
    Staging(std::shared_ptr<const cuda::Device> device, const cuda::PinnedPool::Options& options)
        : pool(std::move(device), options) {}
    cuda::PinnedPool pool;
    std::byte* memory = nullptr;
  };
  std::optional<Staging> staging_;  // in a step in which recipes are tried
  struct {                          // another budget, which the thread of ops takes between two of them
    std::optional<Bytes> wanted;
    std::optional<Result<Resized>> came_to;
    bool over = false;  // the session ends
    std::condition_variable changed;
  } size_;
  std::optional<Error> error_;
  struct {  // of the process, by NVML
    std::function<std::optional<std::uint64_t>()> counter;
    std::uint64_t asked = 0, bytes = 0;
    Bytes most_beside;
  } context_;
};

}  // namespace vedette::detail
