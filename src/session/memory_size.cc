// Fast memory of another size while the program runs. The executor changes it at once; steps that begin find it
// changed, and follow the plan that suits it best. A step without one goes by predictions until its plan is made.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "session/fast_memory.h"
#include "session/memory.h"

namespace vedette::detail {

Bytes Memory::budget() const noexcept { return executor_->budget() + options_.table_memory; }

Result<FastMemory> Memory::set_fast_memory(Bytes asked, bool waits_for_turn) {
  auto got = resize(asked, waits_for_turn);
  if (got && follower_ != nullptr) follower_->program_wants(asked);
  return got;
}

void Memory::follow_pressure() {
  PressureSources::Options sources = PressureSources::of_this_process();
  sources.gpu = executor_->bus_id();
  follower_ = std::make_unique<PressureFollower>(
      sources,
      PressureFollower::Session{.resize = [this](Bytes bytes) { return resize(bytes, /*waits_for_turn=*/false); },
                                .budget = [this] { return budget(); },
                                .least = [this] { return std::max(smallest_budget(), least_fast_memory(options_)); },
                                .say = [this](std::string_view sentence) { messages_.post(sentence); }});
}

Result<FastMemory> Memory::resize(Bytes asked, bool waits_for_turn) {
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
    from = waits_for_turn ? Executor::Caller::waits_for_turn : steps_.caller();
    if (waits_for_turn) steps_.hear_ops();  // one that rests, too
    const auto fewer = static_cast<std::uint32_t>(wanted.value / options_.chunk.value);
    const std::vector<ChunkIndex> leave = arena_.let_slab_leave(most_slab_chunks_that_stay(fewer));
    for (const ChunkIndex c : leave) executor_->release_hold(ChunkRange::one(c));
    plans_.making().leave_to_small_tensors(static_cast<std::uint32_t>(leave.size()));
  }
  steps_.fast_memory_was_asked();
  auto resized = executor_->resize(wanted, from);
  if (!resized) return resized.error();
  const Bytes now = resized->now + options_.table_memory;
  if (!resized->holds.empty())
    messages_.post("fast memory is " + readable(now) + ", and " + readable(asked) + " was asked: " + resized->holds +
                   "; the rest follows as soon as it can");
  return FastMemory{.asked = asked, .now = now, .holds = std::move(resized->holds)};
}

Bytes Memory::smallest_budget() const noexcept {
  const std::uint64_t op = executor_->largest_op_chunks();
  const std::uint64_t beside = executor_->traits().whole_tensors ? 0 : Executor::chunks_beside_op;
  const std::uint64_t chunks = op == 0 ? 0 : op + beside;
  return std::max(executor_->budget_for({chunks * options_.chunk.value}), least_fast_memory(options_));
}

Bytes Memory::wind_down(Bytes most) noexcept {
  const std::lock_guard lock(mutex_);
  if (executor_ == nullptr || arena_.empty()) return {};
  if (!steps_.ops().runs()) plans_.forget_buckets();  // a running op looks into its own
  const std::uint64_t chunks = std::min<std::uint64_t>(most.value / options_.chunk.value, plans_.frames());
  return {executor_->wind_down(static_cast<std::uint32_t>(chunks)) * options_.chunk.value};
}

Bytes Memory::may_keep() const noexcept {
  const std::lock_guard lock(mutex_);
  if (executor_ == nullptr || arena_.empty()) return {};
  return {executor_->may_keep() * options_.chunk.value};
}

}  // namespace vedette::detail
