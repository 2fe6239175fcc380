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
      common_{.chunk_bytes = options.chunk_bytes,
              .program = program_of(options),
              .by_hand = options.by_hand,
              .words = engine::Words(options),
              .books = Books(options.chunks, options.frames),
              .figures = Figures(program_of(options), options.chunk_bytes, options.frames, options.observer)},
      slow_(common_, std::move(options.store), options.habits),
      frames_(common_),
      op_(common_, frames_),
      demand_(common_, slow_, frames_, op_),
      in_place_(common_, slow_, frames_, op_, demand_, options),
      maker_(common_, slow_, frames_, demand_),
      planned_(common_, slow_, frames_, op_, demand_, in_place_),
      migrator_(common_, below_),
      ops_(common_, below_, planned_, migrator_),
      unannounced_(common_, slow_, frames_, op_, demand_),
      tensors_(common_, below_, migrator_),
      budget_(common_, below_, migrator_, std::max(options.frames, options.most_frames)),
      scratch_(common_, frames_, op_, demand_, tensors_),
      watched_(common_, below_, migrator_) {}

std::vector<LinkHabits> Engine::start(std::unique_ptr<ChunkMemory> memory, bool register_frames) {
  std::unique_lock lock(common_.mutex);
  VEDETTE_ASSERT(common_.memory == nullptr);
  common_.memory = std::move(memory);
  traits_.serves_system_calls = common_.memory->reach().system_calls;
  slow_.start();
  traits_.lends = slow_.lends();
  budget_.start();
  common_.books.pool().begin_with(common_.memory->made());
  if (common_.by_hand) {
    slow_.measure();
    return slow_.habits();
  }
  migrator_.start(register_frames);
  common_.arrived.wait(lock, [&] { return slow_.measured(); });
  if (!slow_.registered()) maker_.start();
  return slow_.habits();
}

Engine::~Engine() {
  if (common_.memory != nullptr) quiesce();
  {
    const std::lock_guard lock(common_.mutex);
    common_.ends = true;  // faults that are told from here on are late: fault() leaves them alone
  }
  maker_.join();
  migrator_.join();
  common_.memory.reset();  // no fault is told any more
}

// --- ops -------------------------------------------------------------------------------------------------------------

std::uint64_t Engine::early_touches() const noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.figures.early_touches();
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

// --- plans and figures -----------------------------------------------------------------------------------------------

void Engine::forget_plan() noexcept {
  const std::lock_guard lock(common_.mutex);
  planned_.forget();
}

void Engine::begin_step(std::uint64_t step) {
  const std::lock_guard lock(common_.mutex);
  common_.figures.begin_step(step);
  op_.begin_step();
  maker_.step_begins();
  if (common_.failed_writes.forgive()) common_.books.forgive_writes();
}

void Engine::tell_what_did_not_fit() {
  const std::lock_guard lock(common_.mutex);
  op_.tell_what_did_not_fit();
}

void Engine::end_step() {
  const std::lock_guard lock(common_.mutex);
  op_.end_step();
}

std::vector<detail::InPlaceUse> Engine::take_uses_in_place() noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.figures.take_uses_in_place();
}

Nanoseconds Engine::stalled_since_last_asked() noexcept { return common_.figures.take_stalls(); }

Counters Engine::counters() const noexcept {
  const std::lock_guard lock(common_.mutex);
  Counters now = common_.figures.counters();
  now.ops += common_.quick.ops();
  now.moved_between_slow_tiers.value = slow_.bytes_between_tiers();
  now.resident_bytes.value =
      std::uint64_t{common_.books.frames() - common_.books.available()} * common_.chunk_bytes.value;
  return now;
}

std::optional<Error> Engine::take_error() noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.failed_writes.take_untold();
}

std::uint32_t Engine::largest_op_chunks() const noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.books.largest_op_chunks();
}

std::uint32_t Engine::held_chunks() const noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.books.held();
}

ChunkState Engine::state(ChunkIndex chunk) const noexcept {
  const std::lock_guard lock(common_.mutex);
  return common_.books[chunk].state;
}

std::string Engine::mechanism() const {
  return std::string(common_.memory->mechanism()) + "; " + std::string(slow_.mechanism());
}

void Engine::set_observer(Observer* observer) noexcept {
  const std::lock_guard lock(common_.mutex);
  common_.figures.set_observer(observer);
}

void Engine::quiesce() noexcept {
  std::unique_lock lock(common_.mutex);
  migrator_.await_all_moves(lock);
  frames_.make_resident_all();
}

}  // namespace vedette
