// The side of the engine that the program sees: ops, faults, plans and figures. Tensors come and go in births.cc, what
// moves is started and completed in migrator.cc.
#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/assert.h"
#include "base/quiet_thread.h"
#include "base/readable.h"

namespace vedette {

Engine::Engine(EngineOptions options)
    : frame_count_(options.frames),
      chunk_bytes_(options.chunk_bytes),
      program_(options.program != nullptr ? *options.program : host_program()),
      store_(std::move(options.store)),
      observer_(options.observer),
      reads_one_by_one_(options.reads_one_by_one),
      by_hand_(options.by_hand),
      on_message_(std::move(options.on_message)),
      describe_(std::move(options.describe)),
      chunks_(options.chunks + std::size_t{1}),
      frames_(options.frames) {
  for (std::uint32_t f = frame_count_; f-- > 0;) free_.push_back({f});
  Chunk& head = chunks_[idle_head()];
  head.idle_prev = head.idle_next = idle_head();
  counters_.resident_max_bytes = 0;
}

LinkSpeed Engine::start(std::unique_ptr<ChunkMemory> memory, bool register_frames) {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(memory_ == nullptr);
  register_frames_ = register_frames;
  memory_ = std::move(memory);
  if (by_hand_) {
    speed_ = LinkSpeed{};
    return *speed_;
  }
  migrator_ = start_quiet_thread([this]() noexcept { run(); });
  arrived_.wait(lock, [&] { return speed_.has_value(); });
  return *speed_;
}

Engine::~Engine() {
  if (memory_ != nullptr) quiesce();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;  // faults that are told from here on are late: fault() leaves them alone
  }
  if (migrator_.joinable()) {
    store_->wake();
    migrator_.join();
  }
  memory_.reset();  // no fault is told any more
}

// --- states
// ------------------------------------------------------------------------------------------------------------

void Engine::become(ChunkIndex c, ChunkState next) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(may_become(chunk.state, next));
  if (chunk.state == ChunkState::evicting) --evicting_;
  if (next == ChunkState::evicting) ++evicting_;
  if (next == ChunkState::resident && chunk.state != ChunkState::idle) chunk.arrival = ++arrivals_;
  chunk.state = next;
}

bool Engine::present(ChunkIndex c) const noexcept {
  return chunks_[c].state == ChunkState::resident || chunks_[c].live == 0;
}

bool Engine::pinned(const Chunk& chunk) const noexcept {
  return chunk.holds > 0 || (in_op_ && !op_paged_ && chunk.op_serial == op_serial_);
}

void Engine::pin(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  bring_forth(c);
  chunk.last_use = tick_;
  chunk.leaving = false;
  if (chunk.op_serial == op_serial_) return;
  chunk.op_serial = op_serial_;
  if (chunk.holds > 0) return;  // counted in held_
  op_largest_ = std::max(op_largest_, ++op_pinned_);
}

void Engine::idle_push(ChunkIndex c) {
  const ChunkIndex head = idle_head();
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.state == ChunkState::idle && chunk.live == 0 && !chunk.busy);
  chunk.idle_prev = chunks_[head].idle_prev;
  chunk.idle_next = head;
  chunks_[chunk.idle_prev].idle_next = c;
  chunks_[head].idle_prev = c;
  ++idle_count_;
}

void Engine::idle_remove(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  VEDETTE_ASSERT(chunk.state == ChunkState::idle && !chunk.busy);
  chunks_[chunk.idle_prev].idle_next = chunk.idle_next;
  chunks_[chunk.idle_next].idle_prev = chunk.idle_prev;
  --idle_count_;
}

void Engine::show(FrameIndex frame, ChunkIndex c) {
  memory_->show(frame, c);
  if (watch_ != nullptr) watch_->shown(c, chunks_[c].holds > 0);
}

bool Engine::may_leave(const Chunk& chunk) const noexcept {
  const bool here = chunk.state == ChunkState::resident || parked(chunk.state);
  return here && !chunk.busy && chunk.live > 0 && !pinned(chunk) && !chunk.slot_busy && !chunk.write_failed;
}

void Engine::hide_ahead(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  if (chunk.state != ChunkState::resident || !may_leave(chunk) || watch_ != nullptr) return;
  if (hide(c, chunk.frame)) become(c, ChunkState::hidden);
}

void Engine::bring_forth(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  if (!parked(chunk.state)) return;
  chunk.wanted = chunk.leaving = false;
  if (chunk.state == ChunkState::covered) chunk.touched = true;
  show(chunk.frame, c);
  become(c, ChunkState::resident);
}

void Engine::bring_forth_all() {
  for (const ChunkIndex c : used()) bring_forth(c);
}

// --- frames
// ------------------------------------------------------------------------------------------------------------

std::optional<FrameIndex> Engine::take_parked() {
  if (!free_.empty()) {
    const FrameIndex frame = free_.back();
    free_.pop_back();
    return frame;
  }
  return take_idle();
}

void Engine::free_frame(FrameIndex frame) {
  frames_[frame].owned = false;
  free_.push_back(frame);
}

std::optional<FrameIndex> Engine::take_idle() {
  while (idle_count_ > 0) {
    // dead for the longest time: the least likely to be born again soon
    const ChunkIndex c = chunks_[idle_head()].idle_next;
    idle_remove(c);
    const FrameIndex frame = chunks_[c].frame;
    if (!hide(c, frame)) continue;
    become(c, ChunkState::empty);
    frames_[frame].owned = false;
    return frame;
  }
  return std::nullopt;
}

bool Engine::back(ChunkIndex c) {
  VEDETTE_ASSERT(chunks_[c].state == ChunkState::unbacked);
  std::optional<FrameIndex> shown;
  if (!free_.empty()) {
    shown = free_.back();
    free_.pop_back();
    show(*shown, c);
  }
  while (!shown && idle_count_ > 0) {
    const ChunkIndex from = chunks_[idle_head()].idle_next;
    idle_remove(from);
    const FrameIndex frame = chunks_[from].frame;
    if (watch_ != nullptr) watch_->hiding(from);
    if (!memory_->shift(from, c, frame)) {
      if (watch_ != nullptr) watch_->shown(from, chunks_[from].holds > 0);
      set_busy(from);
      continue;
    }
    if (watch_ != nullptr) watch_->shown(c, chunks_[c].holds > 0);
    become(from, ChunkState::empty);
    shown = frame;
  }
  if (!shown) return false;
  const FrameIndex frame = *shown;
  chunks_[c].frame = frame;
  frames_[frame].owned = true;
  frames_[frame].chunk = c;
  become(c, ChunkState::resident);
  return true;
}

// --- ops
// ---------------------------------------------------------------------------------------------------------------

void Engine::request(ChunkIndex c) {
  Chunk& chunk = chunks_[c];
  if (parked(chunk.state)) {
    bring_forth(c);
    return arrived_.notify_all();
  }
  if (chunk.wanted && chunk.state != ChunkState::unbacked) return;
  chunk.wanted = true;
  if (chunk.state == ChunkState::away || chunk.state == ChunkState::unbacked) urgent_.push_back(c);
}

void Engine::begin_op(Ticks tick, OpIndex op, std::string_view name, std::span<const ChunkRange> operands,
                      const Planned& planned) {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(!in_op_);
  op_ = op;
  op_name_.assign(name);
  ++counters_.ops;
  enter(lock, tick, operands, planned);
}

void Engine::continue_op(Ticks tick, std::span<const ChunkRange> evictions, std::span<const ChunkRange> operands,
                         const Planned& planned) {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(in_op_);
  leave(evictions);
  enter(lock, tick, operands, planned);
}

void Engine::end_op(std::span<const ChunkRange> evictions) noexcept {
  const std::lock_guard lock(mutex_);
  if (!in_op_) return;
  leave(evictions);
  if (can_start()) kick();
}

void Engine::enter(std::unique_lock<std::mutex>& lock, Ticks tick, std::span<const ChunkRange> operands,
                   const Planned& planned) {
  in_op_ = true;
  op_paged_ = false;
  ++op_serial_;
  op_pinned_ = op_largest_ = 0;
  tick_ = tick;
  for (const NextUse& use : planned.next_uses)
    for (const ChunkIndex c : use.range) chunks_[c].next_use = planned.base + use.tick;
  for (const PlannedFetch& fetch : planned.fetches)
    for (const ChunkIndex c : fetch.range) {
      chunks_[c].unchanged = fetch.unchanged;
      fetches_.push_back(c);
    }
  bool missing = false;
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range) {
      if (chunks_[c].live == 0) continue;
      pin(c);
      missing = missing || !present(c);
    }
  op_needs_ = planned.needs;
  op_later_ = planned.later;
  op_events_ = 0;
  if (op_pinned_ > frame_count_ - held_) go_paged();
  if (!missing || op_paged_) {
    if (can_start()) kick();
    return;
  }
  const Nanoseconds began = program_.now();
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range)
      if (!present(c)) request(c);
  op_waits_ = true;
  kick();
  await(lock, [&] {
    if (op_paged_) return true;  // somebody else's allocation made the op too large for the budget
    for (const ChunkRange range : operands)
      for (const ChunkIndex c : range)
        if (!present(c)) return false;
    return true;
  });
  op_waits_ = false;
  add_stall(began, false);
}

void Engine::leave(std::span<const ChunkRange> evictions) {
  for (const ChunkIndex c : covered_)
    if (chunks_[c].state == ChunkState::covered) {
      bring_forth(c);
      chunks_[c].touched = false;  // by the op's end, not by a thread
    }
  covered_.clear();
  largest_op_ = std::max(largest_op_, op_largest_ + held_);
  in_op_ = op_paged_ = false;
  op_needs_ = {};
  op_later_ = {};
  ++op_serial_;
  for (const ChunkRange range : evictions)
    for (const ChunkIndex c : range) {
      chunks_[c].leaving = true;
      evictions_.push_back(c);
      hide_ahead(c);
    }
}

void Engine::cover(std::span<const ChunkRange> operands) noexcept {
  const std::lock_guard lock(mutex_);
  const bool coverable = watch_ == nullptr && in_op_ && !op_paged_;
  for (const ChunkRange range : operands)
    for (const ChunkIndex c : range) {
      Chunk& chunk = chunks_[c];
      if (coverable && chunk.state == ChunkState::resident && chunk.live > 0 && chunk.op_serial == op_serial_ &&
          chunk.holds == 0 && !chunk.busy && hide(c, chunk.frame)) {
        become(c, ChunkState::covered);
        covered_.push_back(c);
      }
      chunk.touched = chunk.state != ChunkState::covered;
    }
}

bool Engine::touched(ChunkRange operand) const noexcept {
  const std::lock_guard lock(mutex_);
  for (const ChunkIndex c : operand)
    if (chunks_[c].touched) return true;
  return false;
}

std::uint64_t Engine::early_touches() const noexcept {
  const std::lock_guard lock(mutex_);
  return early_touches_;
}

std::string Engine::paged_sentence() const {
  const auto size = [&](std::uint64_t chunks) { return Bytes{chunks * chunk_bytes_.value}; };
  return "op '" + op_name_ + "' needs " + readable(size(std::uint64_t{op_largest_} + held_)) +
         " at once and the budget is " + readable(size(frame_count_)) +
         ": it runs paged, slowly; give fast_memory at least " +
         readable_exactly(size(std::uint64_t{op_largest_} + held_ + 2));
}

void Engine::go_paged() {
  if (op_paged_) return;
  op_paged_ = true;
  if (write_error_) return arrived_.notify_all();  // the op is not too large
  if (std::find(paged_ops_told_.begin(), paged_ops_told_.end(), op_name_) == paged_ops_told_.end()) {
    paged_ops_told_.push_back(op_name_);
    if (on_message_) on_message_(paged_sentence());
  }
  arrived_.notify_all();
}

void Engine::wake(ChunkIndex c) {
  if (Faults* const faults = memory_->faults(); faults != nullptr) faults->wake(c);
}

void Engine::add_stall(Nanoseconds began, bool in_allocation) {
  const Nanoseconds ended = program_.now();
  ++counters_.stall_count;
  counters_.stall_ns += static_cast<std::uint64_t>((ended - began).value);
  op_thread_stall_ += ended - began;
  if (observer_ != nullptr)
    observer_->stalled({.step = step_, .op = op_, .in_allocation = in_allocation, .began = began, .ended = ended});
}

void Engine::fault(const Fault& fault) noexcept {
  std::unique_lock lock(mutex_);
  if (stop_) return;  // the memory is ending or has ended, and wakes everybody itself
  const ChunkIndex c = fault.chunk;
  Chunk& chunk = chunks_[c];
  if (shown(chunk.state)) {
    wake(c);
    return;
  }
  if (chunk.live == 0) return stray(c, fault);
  if (chunk.state == ChunkState::covered) return bring_forth(c);  // and nobody's fault
  if (watch_ != nullptr) watch_->faulted(c, fault.page, fault.write);
  if (!chunk.wanted) {
    const bool early = !op_paged_ && std::any_of(op_later_.begin(), op_later_.end(),
                                                 [&](const ChunkRange& r) { return r.contains(c); });
    early_touches_ += early ? 1 : 0;
    ++counters_.faults;
    const Nanoseconds now = program_.now();
    if (observer_ != nullptr)
      observer_->faulted({.step = step_,
                          .op = op_,
                          .chunk = c.value,
                          .page = fault.page,
                          .write = fault.write,
                          .began = now,
                          .ended = now});
  }
  chunk.last_use = tick_;
  chunk.fault = ++faults_;  // or it would be the next to leave, before who waits for it has run
  request(c);
  kick();
}

// A fault is told some time after it happened: whoever faulted may have been woken by the chunk's arrival and have
// freed it since. So it is asked again; only a thread that is still there comes back, and again, and each chunk that
// died has been waited for by few.
void Engine::stray(ChunkIndex c, const Fault& fault) noexcept {
  constexpr std::uint32_t most_late = 256;
  if (++chunks_[c].strays > most_late) {
    std::array<char, 160> sentence;
    std::snprintf(sentence.data(), sentence.size(),
                  "the program touched memory of the arena that belongs to no tensor (freed, or never allocated), in "
                  "the page at %p",
                  static_cast<const void*>(fault.address));
    die(sentence.data());
  }
  wake(c);
}

// --- tracking
// ----------------------------------------------------------------------------------------------------------

void Engine::set_watch(FrameWatch* watch) noexcept {
  const std::lock_guard lock(mutex_);
  FrameWatch* const told = watch != nullptr ? watch : watch_;
  for (const ChunkIndex c : told != nullptr ? used() : ChunkRange()) {
    if (!shown(chunks_[c].state)) continue;
    watch != nullptr ? told->shown(c, chunks_[c].holds > 0) : told->hiding(c);
  }
  watch_ = watch;
}

Result<void> Engine::convert(FrameKind kind) noexcept {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(watch_ == nullptr);
  if (memory_->trackable() == nullptr) {
    return Error{.cause = Cause::unavailable, .message = "this memory has one kind of frames", .errno_value = 0};
  }
  if (kind != FrameKind::fast && registered_) {
    return Error{.cause = Cause::unavailable,
                 .message = "frames that are registered for I/O cannot change their memory",
                 .errno_value = 0};
  }
  fetches_.clear();
  evictions_.clear();
  kick();
  await(lock, [&] { return in_flight_ == 0 && urgent_.empty(); });
  bring_forth_all();
  while (const auto frame = take_idle()) free_.push_back(*frame);  // bytes of the dead need not be copied
  for (FrameIndex f; f.value < frame_count_; ++f.value) {
    std::optional<ChunkIndex> shown_at;
    if (frames_[f].owned) shown_at = frames_[f].chunk;
    if (auto converted = memory_->trackable()->convert(f, shown_at, kind, shown_at.has_value()); !converted)
      return converted;
  }
  return {};
}

void Engine::expect_writes(std::byte* begin, std::size_t bytes, ChunkIndex c) noexcept {
  const std::lock_guard lock(mutex_);
  Trackable* const trackable = memory_->trackable();
  if (trackable != nullptr && chunks_[c].state == ChunkState::resident) trackable->expect_writes(begin, bytes);
}

// --- plans and figures
// -------------------------------------------------------------------------------------------------

void Engine::forget_plan() noexcept {
  const std::lock_guard lock(mutex_);
  fetches_.clear();
  evictions_.clear();
  bring_forth_all();
  for (Chunk& chunk : chunks_) chunk.next_use = never;
}

void Engine::begin_step(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  forgive_writes();
}

Nanoseconds Engine::stalled_since_last_asked() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(op_thread_stall_, Nanoseconds{});
}

Counters Engine::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  Counters now = counters_;
  now.resident_bytes = std::uint64_t{frame_count_ - available()} * chunk_bytes_.value;
  return now;
}

std::optional<Error> Engine::take_error() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, std::nullopt);
}

std::uint32_t Engine::largest_op_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  return largest_op_;
}

std::uint32_t Engine::held_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  return held_;
}

ChunkState Engine::state(ChunkIndex chunk) const noexcept {
  const std::lock_guard lock(mutex_);
  return chunks_[chunk].state;
}

bool Engine::idle_backed(ChunkIndex chunk) const noexcept {
  const std::lock_guard lock(mutex_);
  return chunks_[chunk].state == ChunkState::idle;
}

std::string Engine::mechanism() const {
  return std::string(memory_->mechanism()) + "; " + std::string(store_->mechanism());
}

void Engine::set_observer(Observer* observer) noexcept {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
}

void Engine::quiesce() noexcept {
  std::unique_lock lock(mutex_);
  fetches_.clear();
  evictions_.clear();
  kick();
  await(lock, [&] { return in_flight_ == 0 && urgent_.empty(); });
  bring_forth_all();
}

}  // namespace vedette
