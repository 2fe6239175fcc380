// The side of the engine that the program sees: ops, faults, plans and figures. Tensors come and go in births.cc, moves
// start and end in migrator.cc.
#include "engine/engine.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette {
namespace {

Program& program_of(const EngineOptions& options) {
  return options.program != nullptr ? *options.program : host_program();
}

}  // namespace

Engine::Engine(EngineOptions options)
    : Executor({.predicts = true, .replays = options.program != nullptr && options.program != &host_program()}),
      HasCommon{{.chunk_bytes = options.chunk_bytes,
                 .program = program_of(options),
                 .by_hand = options.by_hand,
                 .words = engine::Words(options),
                 .books = Books(options.chunks, options.frames),
                 .figures = Figures(program_of(options), options.chunk_bytes, options.frames, options.observer)}},
      PartOfEngine(common),
      slow_(common, std::move(options.store), options.habits),
      frames_(common),
      op_(common, frames_),
      demand_(common, slow_, frames_, op_),
      in_place_(common, slow_, frames_, op_, demand_, options),
      maker_(common, slow_, frames_, demand_),
      planned_(common, slow_, frames_, op_, demand_, in_place_),
      migrator_(common, below()),
      ops_(common, below(), planned_, migrator_),
      unannounced_(common, slow_, frames_, op_, demand_),
      tensors_(common, below(), migrator_),
      budget_(common, below(), migrator_, std::max(options.frames, options.most_frames)) {}

std::vector<LinkHabits> Engine::start(std::unique_ptr<ChunkMemory> memory, bool register_frames) {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(memory_ == nullptr);
  common.memory = std::move(memory);
  traits_.serves_system_calls = memory_->reach().system_calls;
  slow_.start();
  budget_.start();
  books_.pool().begin_with(memory_->made());
  if (by_hand_) {
    slow_.measure();
    return slow_.habits();
  }
  migrator_.start(register_frames);
  arrived_.wait(lock, [&] { return slow_.measured(); });
  if (!slow_.registered()) maker_.start();
  return slow_.habits();
}

Engine::~Engine() {
  if (memory_ != nullptr) quiesce();
  {
    const std::lock_guard lock(mutex_);
    common.ends = true;  // faults that are told from here on are late: fault() leaves them alone
  }
  maker_.join();
  migrator_.join();
  common.memory.reset();  // no fault is told any more
}

// --- ops -------------------------------------------------------------------------------------------------------------

std::uint64_t Engine::early_touches() const noexcept {
  const std::lock_guard lock(mutex_);
  return figures_.early_touches();
}

void Engine::begin_op(OpIndex op, std::string_view name, const Part& part) {
  const bool moves = !part.moves.fetches.empty() || !part.moves.departures.empty() || !part.moves.made.empty() ||
                     !part.moves.in_place.empty();
  if (part.repeats && !moves && part.start == nullptr &&
      begin_quick_op(part.tick, op, name, part.operands, part.frames_to_come))
    return;
  ops_.begin(op, name, part);
}

void Engine::continue_op(std::span<const OpMoves::Departure> departures, const Part& part,
                         const std::function<void()>& between) {
  ops_.go_on(departures, part, between);
}

void Engine::end_op(std::span<const OpMoves::Departure> departures) noexcept {
  if (departures.empty() && end_quick_op()) return;
  ops_.end(departures);
}

// --- tracking --------------------------------------------------------------------------------------------------------

void Engine::set_watch(FrameWatch* watch) noexcept {
  const std::lock_guard lock(mutex_);
  op_.disturb();
  in_place_.take_all_back();  // it sees frames alone
  frames_.set_watch(watch);
}

Result<void> Engine::convert(FrameKind kind) noexcept {
  std::unique_lock lock(mutex_);
  VEDETTE_ASSERT(!frames_.watched() && !maker_.winds_down());
  if (memory_->trackable() == nullptr) {
    return Error{.cause = Cause::unavailable, .message = "this memory has one kind of frames"};
  }
  if (kind != FrameKind::fast && slow_.registered()) {
    return Error{.cause = Cause::unavailable,
                 .message = "frames that are registered for I/O cannot change their memory"};
  }
  migrator_.await_all_moves(lock);
  op_.disturb();
  frames_.make_resident_all();
  while (const auto frame = frames_.take_idle()) books_.give_free(*frame);  // bytes of the dead need not be copied
  for (FrameIndex f; f.value < figures_.frames(); ++f.value) {
    if (!books_.pool().has_memory(f)) continue;
    const std::optional<ChunkIndex> shown_at = books_.owner(f);
    if (auto converted = memory_->trackable()->convert(f, shown_at, kind, shown_at.has_value()); !converted)
      return converted;
  }
  maker_.make_from_now_on(kind);
  return {};
}

void Engine::expect_writes(std::byte* begin, std::size_t bytes, ChunkIndex c) noexcept {
  const std::lock_guard lock(mutex_);
  Trackable* const trackable = memory_->trackable();
  if (trackable != nullptr && books_[c].state == ChunkState::resident) trackable->expect_writes(begin, bytes);
}

// --- plans and figures -----------------------------------------------------------------------------------------------

void Engine::forget_plan() noexcept {
  const std::lock_guard lock(mutex_);
  planned_.forget();
}

void Engine::begin_step(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  figures_.begin_step(step);
  op_.begin_step();
  maker_.step_begins();
  if (failed_writes_.forgive()) books_.forgive_writes();
}

void Engine::tell_what_did_not_fit() {
  const std::lock_guard lock(mutex_);
  op_.tell_what_did_not_fit();
}

void Engine::end_step() {
  const std::lock_guard lock(mutex_);
  op_.end_step();
}

std::vector<detail::InPlaceUse> Engine::take_uses_in_place() noexcept {
  const std::lock_guard lock(mutex_);
  return figures_.take_uses_in_place();
}

Nanoseconds Engine::stalled_since_last_asked() noexcept { return figures_.take_stalls(); }

Counters Engine::counters() const noexcept {
  const std::lock_guard lock(mutex_);
  Counters now = figures_.counters();
  now.ops += quick_.ops();
  now.moved_between_slow_tiers.value = slow_.bytes_between_tiers();
  now.resident_bytes.value = std::uint64_t{books_.frames() - books_.available()} * chunk_bytes_.value;
  return now;
}

std::optional<Error> Engine::take_error() noexcept {
  const std::lock_guard lock(mutex_);
  return failed_writes_.take_untold();
}

std::uint32_t Engine::largest_op_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  return books_.largest_op_chunks();
}

std::uint32_t Engine::held_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  return books_.held();
}

ChunkState Engine::state(ChunkIndex chunk) const noexcept {
  const std::lock_guard lock(mutex_);
  return books_[chunk].state;
}

std::string Engine::mechanism() const {
  return std::string(memory_->mechanism()) + "; " + std::string(slow_.mechanism());
}

void Engine::set_observer(Observer* observer) noexcept {
  const std::lock_guard lock(mutex_);
  figures_.set_observer(observer);
}

void Engine::quiesce() noexcept {
  std::unique_lock lock(mutex_);
  migrator_.await_all_moves(lock);
  frames_.make_resident_all();
}

}  // namespace vedette
