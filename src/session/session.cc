// The front door: sessions and scopes. In a forked child every call ends here, and no thread is cancelled behind it.
#include "vedette/session.h"

#include "base/uncancelled.h"
#include "session/core.h"
#include "session/lease.h"
#include "session/registry.h"
#include "session/share.h"

namespace vedette {
namespace {

Error inherited_by_a_child() {
  return {.cause = Cause::unsupported,
          .message =
              "a session works only in the process that opened it, and this is a child of fork(); open one of "
              "its own here, or start the child by spawn",
          .errno_value = 0};
}

Error switched_off_error() {
  return {.cause = Cause::unavailable,
          .message = "a session that is switched off has no memory; allocate it as the program does without vedette",
          .errno_value = 0};
}

// A message's reader may throw: what has begun for the caller ends then.
template <class Undo>
void deliver_or(detail::SessionCore& core, Undo undo) {
  try {
    core.deliver_messages();
  } catch (...) {
    undo();
    throw;
  }
}

}  // namespace

// --- scopes ----------------------------------------------------------------------------------------------------------

StepScope::~StepScope() {
  const Uncancelled in_here;
  if (session_.is_off()) return;
  session_.core_->steps().end_step();
  session_.end_shared_step();
  session_.core_->deliver_messages();
}

OpScope::~OpScope() {
  const Uncancelled in_here;
  if (session_.is_off()) return;
  session_.core_->steps().end_op();
  session_.core_->deliver_messages();
}

LayerScope::~LayerScope() {
  const Uncancelled in_here;
  if (!session_.is_off()) session_.core_->steps().pop_layer();
}

ResidentScope::~ResidentScope() {
  const Uncancelled in_here;
  if (core_ != nullptr && !core_->inherited()) core_->memory().release_hold(ChunkRange::of({first_}, count_));
}

// --- session ---------------------------------------------------------------------------------------------------------

Session::Session(detail::SessionCore* core, std::unique_ptr<detail::Lease> lease) noexcept
    : core_(core), lease_(std::move(lease)) {
  if (lease_ == nullptr) return;
  lease_->follow([core](Bytes bytes, bool waits_for_turn) {
    const auto resized = core->memory().set_fast_memory(bytes, waits_for_turn);
    return resized ? resized->now : core->memory().budget();
  });
}

Session::~Session() {
  const Uncancelled in_here;
  if (in_child()) {
    [[maybe_unused]] const auto* const parents = lease_.release();  // its thread is in the parent
  }
  if (lease_ != nullptr) {
    core_->end_resizing();
    lease_->follow_no_more();
  }
  if (core_ != nullptr) detail::close_session(core_);
  lease_.reset();  // its memory is free for others by now
}

bool Session::in_child() const noexcept { return core_ != nullptr && core_->inherited(); }

bool Session::is_off() const noexcept { return core_ == nullptr || core_->inherited(); }

std::unique_ptr<Session> Session::switched_off() { return std::unique_ptr<Session>(new Session(nullptr, nullptr)); }

Result<std::byte*> Session::allocate(const AllocateOptions& options) {
  const Uncancelled in_here;
  if (in_child()) return inherited_by_a_child();
  if (is_off()) return switched_off_error();
  auto memory = core_->memory().allocate(options);
  deliver_or(*core_, [&] {
    if (memory) core_->release(*memory);
  });
  return memory;
}

void Session::release(std::byte* memory) noexcept {
  const Uncancelled in_here;
  if (detail::SessionCore* const core = detail::owner_of(memory); core != nullptr && !core->inherited()) {
    core->release(memory);
    core->deliver_messages();
  }
}

bool Session::owns(const void* memory) noexcept { return detail::owner_of(memory) != nullptr; }

void Session::label(const void* memory, std::string_view name, TensorKind kind) {
  const Uncancelled in_here;
  if (!is_off()) core_->memory().label(memory, name, kind);
}

Result<void> Session::place(std::string_view names, std::string_view tier, Placement as) {
  const Uncancelled in_here;
  if (in_child()) return inherited_by_a_child();
  return is_off() ? Result<void>() : core_->memory().place(names, tier, as);
}

bool Session::wants_shapes() const noexcept { return !is_off() && core_->steps().wants_shapes(); }

void Session::shape(const void* memory, std::span<const std::int64_t> sizes) {
  const Uncancelled in_here;
  if (!is_off()) core_->memory().shape(memory, sizes);
}

bool Session::wants_uses_beside() const noexcept { return !is_off() && core_->steps().wants_uses_beside(); }

void Session::uses_beside(const UseBeside& use) {
  const Uncancelled in_here;
  if (!is_off()) core_->steps().uses_beside(use);
}

StepScope Session::step() {
  const Uncancelled in_here;
  if (is_off()) return StepScope(*this);
  if (lease_ != nullptr) lease_->begin_step();
  core_->steps().begin_step();
  deliver_or(*core_, [&] { core_->steps().end_step(); });
  return StepScope(*this);
}

void Session::end_shared_step() {
  if (lease_ == nullptr) return;
  const Counters counters = core_->counters();
  lease_->end_step({static_cast<std::int64_t>(counters.stall_ns)},
                   detail::needs_of(core_->options().chunk, lease_->most(), core_->memory().smallest_budget(),
                                    {counters.peak_bytes.value}));
}

LayerScope Session::layer(std::string_view name, Phase phase) {
  const Uncancelled in_here;
  if (!is_off()) core_->steps().push_layer(name, phase);
  return LayerScope(*this);
}

void Session::mark_layer(std::string_view name, Phase phase) {
  const Uncancelled in_here;
  if (!is_off()) core_->steps().mark_layer(name, phase);
}

OpScope Session::op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                    std::span<const Part> parts, Bytes result) {
  const Uncancelled in_here;
  if (is_off()) return OpScope(*this);
  core_->steps().begin_op(name, reads, writes, parts, result);
  deliver_or(*core_, [&] { core_->steps().end_op(); });
  return OpScope(*this);
}

bool Session::wants_ops() noexcept { return in_child() || (!is_off() && core_->steps().wants_ops()); }

void Session::hear_ops() noexcept {
  if (!is_off()) core_->steps().hear_ops();
}

bool Session::wants_recipe() const noexcept { return !is_off() && core_->steps().ops().wants_recipe(); }

void Session::keep_recipe(std::unique_ptr<Recipe> recipe) {
  if (!is_off()) core_->steps().ops().keep_recipe(std::move(recipe));
}

bool Session::may_be_dropped(const void* memory) const noexcept {
  return !is_off() && core_->memory().may_be_dropped(memory);
}

bool Session::recomputes() const noexcept { return !is_off() && core_->steps().drops().recomputer() != nullptr; }

void Session::others_write(const void* memory) {
  if (!is_off()) core_->memory().others_write(memory);
}

ResidentScope Session::resident(const void* memory, std::chrono::milliseconds patience, NoRoom no_room) {
  const Uncancelled in_here;
  if (is_off()) return ResidentScope(nullptr, 0, 0);
  const auto held = core_->memory().hold(memory, patience);
  if (!held && no_room == NoRoom::is_thrown) throw Failure(held.error());
  if (!held) core_->post(held.error().message);
  const std::optional<ChunkRange> chunks = held ? *held : std::nullopt;
  deliver_or(*core_, [&] {
    if (chunks) core_->memory().release_hold(*chunks);
  });
  return chunks ? ResidentScope(core_, chunks->first().value, chunks->size()) : ResidentScope(nullptr, 0, 0);
}

GpuMemory* Session::gpu() const noexcept { return is_off() ? nullptr : core_->gpu(); }

Counters Session::counters() const noexcept { return is_off() ? Counters{} : core_->counters(); }

std::optional<Error> Session::take_error() {
  if (in_child()) return inherited_by_a_child();
  return is_off() ? std::nullopt : core_->take_error();
}

Bytes Session::smallest_budget() const noexcept { return is_off() ? Bytes{} : core_->memory().smallest_budget(); }

Bytes Session::budget() const noexcept { return is_off() ? Bytes{} : core_->memory().budget(); }

Result<FastMemory> Session::set_fast_memory(Bytes bytes) {
  const Uncancelled in_here;
  if (in_child()) return inherited_by_a_child();
  if (core_ == nullptr) return FastMemory{.asked = bytes};
  auto resized = core_->memory().set_fast_memory(bytes);
  core_->deliver_messages();
  return resized;
}

std::string_view Session::phase() const noexcept {
  if (core_ == nullptr) return "off";
  return in_child() ? std::string_view() : core_->steps().phase();
}

std::string Session::mechanism() const { return core_ == nullptr ? "nothing moves" : core_->mechanism(); }

std::string_view Session::tracker() const noexcept {
  return core_ == nullptr ? std::string_view() : core_->steps().profiling().tracker();
}

Machine Session::machine() const { return is_off() ? Machine{} : core_->machine(); }
const Trace* Session::trace() const noexcept { return is_off() ? nullptr : core_->trace(); }

std::vector<PlannedStep> Session::planned_steps() const {
  return is_off() ? std::vector<PlannedStep>() : core_->planned_steps();
}

}  // namespace vedette
