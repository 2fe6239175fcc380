// Memory of a GPU, for the program and in figures: see executor.h.
#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "base/assert.h"
#include "base/readable.h"
#include "cuda/nvml.h"
#include "gpu/executor.h"

namespace vedette::detail {

// NVML takes a millisecond, and its answer hardly changes: it is asked at the first, the second, the fourth ... time.
GpuBytes GpuExecutor::gpu_bytes() noexcept {
  const GpuProgram::Beside beside = options_.program->beside();  // its locks come after none of ours
  const std::lock_guard lock(mutex_);
  GpuBytes bytes;
  const Bytes of_session{places_->budget().value + tables().device_bytes};
  if (!context_.counter) context_.counter = cuda::process_memory_counter(device_->bus_id());
  if (std::has_single_bit(++context_.asked)) {
    const std::uint64_t known = of_session.value + beside.reserved, all = context_.counter().value_or(0);
    context_.bytes = all > known ? all - known : 0;
  }
  bytes.context = {context_.bytes};
  bytes.beside = Bytes{beside.reserved} + bytes.context;
  context_.most_beside = std::max({context_.most_beside, bytes.beside, Bytes{beside.most_reserved} + bytes.context});
  bytes.most_beside = context_.most_beside;
  bytes.on_device = of_session + bytes.beside;
  bytes.large = {beside.large};
  bytes.pools = {beside.pools};
  bytes.workspaces = {beside.workspaces};
  const HostSlots::Counters host = places_->counters().host;
  bytes.locked = host.pinned;
  bytes.in_locked = host.taken;
  bytes.most_locked = host.most_pinned;
  bytes.pageable = host.pageable;
  return bytes;
}

// --- another budget --------------------------------------------------------------------------------------------------

Bytes GpuExecutor::budget() const noexcept {
  const std::lock_guard lock(mutex_);
  return places_->budget();
}

// Addresses change, so that the thread of ops does it, between two of them.
Result<Executor::Resized> GpuExecutor::resize(Bytes budget, Caller caller) {
  constexpr std::chrono::seconds patience{10};
  if (options_.managed)
    return Error{.cause = Cause::unsupported,
                 .message = "managed memory (tracker cupti) keeps its size; use another tracker"};
  const Bytes most = std::max(options_.budget, options_.most);
  if (budget > most || budget.value < options_.chunk.value)
    return Error{.cause = Cause::unsupported,
                 .message = "fast memory of " + readable_exactly(budget) + " is not between " +
                            readable_exactly(options_.chunk) + " and what the GPU has, " + readable_exactly(most)};
  const cuda::Current current(*device_);
  std::unique_lock lock(mutex_);
  const bool between_ops = caller == Caller::between_ops || caller == Caller::waits_for_turn;
  if (budget == places_->budget() && !size_.wanted) return Resized{.now = budget};
  if (between_ops && is_woken_) wake();
  const bool rests = places_->is_still();  // ops that are not announced may use anything
  if (between_ops && !rests) {
    auto now = resize_now(budget, caller == Caller::waits_for_turn ? Bytes() : largest_op());
    if (size_.wanted) {  // by another thread, earlier
      size_.wanted.reset();
      size_.came_to = now;
      size_.changed.notify_all();
    }
    return now;
  }
  size_.came_to.reset();
  size_.wanted = budget;
  const bool taken = caller == Caller::another_thread &&
                     size_.changed.wait_for(lock, patience, [&] { return size_.came_to || size_.over; });
  if (taken && size_.came_to) return *size_.came_to;
  return Resized{.now = places_->budget(),
                 .holds = rests ? "nothing has moved for many steps, and the size changes as the next step begins"
                                : "the GPU's memory changes its size when the running op ends"};
}

Bytes GpuExecutor::largest_op() const noexcept {
  return {std::min(chunks_.largest_op * options_.chunk.value, places_->budget().value)};
}

Result<Executor::Resized> GpuExecutor::resize_now(Bytes budget, Bytes least) {
  const cuda::BesideCaptures captures(*device_);
  planned_ = before_ = followed_ = nullptr;
  places_->forget_plan();
  const auto now = places_->resize(std::max(budget, least));
  if (!now) return now.error();
  if (*now <= budget) return Resized{.now = *now};
  if (*now <= least) return Resized{.now = *now, .holds = "the largest op so far needs " + readable(least)};
  return Resized{.now = *now, .holds = "tensors whose address other code keeps lie there, or host memory is full"};
}

void GpuExecutor::end_resizing() noexcept {
  const std::lock_guard lock(mutex_);
  size_.over = true;
  size_.changed.notify_all();
}

void GpuExecutor::take_pending_size() {
  if (!size_.wanted || places_->is_still()) return;
  size_.came_to = resize_now(*std::exchange(size_.wanted, std::nullopt), largest_op());
  size_.changed.notify_all();
}

// The rest, which plans do not get, too: around memory whose address other code keeps, as a library's workspace.
std::uint32_t GpuExecutor::held_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t cut_off = places_->budget().value - movable().bytes.value;
  return chunks_.held + static_cast<std::uint32_t>((cut_off + options_.chunk.value - 1) / options_.chunk.value);
}

std::uint32_t GpuExecutor::largest_op_chunks() const noexcept {
  const std::lock_guard lock(mutex_);
  return chunks_.largest_op;
}

// --- ops that are not announced --------------------------------------------------------------------------------------

// A table hears of its rows from ops, and an observer of all.
bool GpuExecutor::may_rest() const noexcept {
  const std::lock_guard lock(mutex_);
  return tables_ == nullptr && options_.reports == nullptr && !options_.managed && places_->all_in_place();
}

void GpuExecutor::begin_rest() noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  is_woken_ = false;
  note(places_->keep_still(stream()));
}

void GpuExecutor::end_rest() noexcept {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
}

// Unannounced ops may have used anything, on any stream.
void GpuExecutor::wake() {
  is_woken_ = false;
  note(device_->synchronize());
  places_->move_again();
}

// --- GpuMemory -------------------------------------------------------------------------------------------------------

DeviceAddress GpuExecutor::address(const void* name) const noexcept {
  const std::lock_guard lock(mutex_);
  const BlockIndex* const block = names_.block(name);
  return block == nullptr ? 0 : places_->address(*block);
}

void GpuExecutor::allow_moves(const void* name) noexcept {
  const std::lock_guard lock(mutex_);
  if (const BlockIndex* const block = names_.block(name)) places_->allow_moves(*block);
}

void GpuExecutor::forbid_moves(const void* name) noexcept {
  const std::lock_guard lock(mutex_);
  if (const BlockIndex* const block = names_.block(name)) places_->forbid_moves(*block);
}

Result<void> GpuExecutor::copy_to(const void* name, DeviceAddress to) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const BlockIndex* const block = names_.block(name);
  VEDETTE_ASSERT(block != nullptr);
  if (places_->is_dropped(*block))
    return Error{.cause = Cause::out_of_memory,
                 .message = "a dropped tensor does not fit into the budget beside what is held"};
  return places_->copy_to(*block, to, stream());
}

void GpuExecutor::will_be_captured() noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  if (is_woken_) wake();
  places_->cover_all_uses();
}

void GpuExecutor::used_on(const void* name, void* stream) noexcept {
  const cuda::CurrentAmongSeveral current(*device_);
  const std::lock_guard lock(mutex_);
  if (const BlockIndex* const block = names_.block(name))
    places_->record_stream(*block, static_cast<cuda::StreamHandle>(stream));
}

GpuMemory::Range GpuExecutor::memory() const noexcept {
  const std::lock_guard lock(mutex_);
  const PlaceExecutor::Counters places = places_->counters();
  return {.address = places_->range(),
          .bytes = places_->budget().value,
          .in_use = places.in_use.value,
          .most_in_use = places.most_in_use.value};
}

void GpuExecutor::looked_up(const GpuLookup& lookup, void* stream) noexcept {
  if (tables_ != nullptr) tables_->looked_up(lookup, static_cast<cuda::StreamHandle>(stream));
}

}  // namespace vedette::detail
