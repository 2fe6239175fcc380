// Fast memory of another size while the program runs. The executor changes it at once; steps that begin find it
// changed, and follow the plan that suits it best. A step without one goes by predictions until its plan is made.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "session/core.h"
#include "session/fast_memory.h"

namespace vedette::detail {

Bytes SessionCore::budget() const noexcept { return executor_->budget() + options_.table_memory; }

// With the lock. A step's thread waits for the passes of others that it calls.
Executor::Caller SessionCore::caller() const {
  const std::thread::id here = std::this_thread::get_id(), ops = op_thread_.load(std::memory_order_relaxed);
  const bool runs = op_depth_ > 0;
  if (runs && ops == here) return Executor::Caller::in_its_op;
  const bool first = ops == std::thread::id() && begin_.thread == std::thread::id();
  return !runs && (first || ops == here || begin_.thread == here) ? Executor::Caller::between_ops
                                                                  : Executor::Caller::another_thread;
}

Result<FastMemory> SessionCore::set_fast_memory(Bytes asked, bool waits_for_turn) {
  auto got = resize(asked, waits_for_turn);
  if (got && follower_ != nullptr) follower_->program_wants(asked);
  return got;
}

void SessionCore::follow_pressure() {
  PressureSources::Options sources = PressureSources::of_this_process();
  sources.gpu = executor_->bus_id();
  follower_ = std::make_unique<PressureFollower>(
      sources,
      PressureFollower::Session{.resize = [this](Bytes bytes) { return resize(bytes, /*waits_for_turn=*/false); },
                                .budget = [this] { return budget(); },
                                .least = [this] { return std::max(smallest_budget(), least_fast_memory(options_)); },
                                .say = [this](std::string_view sentence) { messages_.post(sentence); }});
}

Result<FastMemory> SessionCore::resize(Bytes asked, bool waits_for_turn) {
  if (!executor_->traits().whole_tensors) {
    SessionOptions size;
    size.fast_memory = asked;
    size.chunk = options_.chunk;
    if (auto valid = valid_fast_memory(size); !valid) return valid.error();
    if (auto fits = fits_memory_cgroup(size); !fits) return fits.error();
  }
  if (asked.value <= options_.table_memory.value)
    return Error{.cause = Cause::unsupported,
                 .message = "fast memory of " + readable_exactly(asked) + " leaves nothing beside the tables' " +
                            readable_exactly(options_.table_memory)};
  const Bytes wanted = asked - options_.table_memory;
  Executor::Caller from{};
  {
    const std::lock_guard lock(mutex_);
    from = waits_for_turn ? Executor::Caller::waits_for_turn : caller();
    if (waits_for_turn) hear_ops();  // one that rests, too
    const auto fewer = static_cast<std::uint32_t>(wanted.value / options_.chunk.value);
    const std::vector<ChunkIndex> leave = arena_.let_slab_leave(most_slab_chunks_that_stay(fewer));
    for (const ChunkIndex c : leave) executor_->release_hold(ChunkRange::one(c));
    plans_.making().leave_to_small_tensors(static_cast<std::uint32_t>(leave.size()));
  }
  size_asked_ = true;
  auto resized = executor_->resize(wanted, from);
  if (!resized) return resized.error();
  const Bytes now = resized->now + options_.table_memory;
  if (!resized->holds.empty())
    messages_.post("fast memory is " + readable(now) + ", and " + readable(asked) + " was asked: " + resized->holds +
                   "; the rest follows as soon as it can");
  return FastMemory{.asked = asked, .now = now, .holds = std::move(resized->holds)};
}

// A step begins.
void SessionCore::follow_budget() {
  if (size_asked_.exchange(false)) hear_ops();
  const Bytes budget = executor_->budget();
  if (!plans_.making().is_another_size(budget)) return plans_.making().plan_for_size();
  hear_ops();
  plans_.making().follow_size(budget);
}

}  // namespace vedette::detail
