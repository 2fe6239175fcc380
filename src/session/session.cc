// The front door: sessions, scopes, and which bytes of the arena a tensor gets.
#include "vedette/session.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/assert.h"
#include "base/readable.h"
#include "session/registry.h"
#include "session/state.h"

namespace vedette {
namespace detail {

ChunkRange SessionState::chunks_of(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const std::uint64_t chunk = options.chunk.value;
  const auto first = static_cast<std::uint32_t>(offset / chunk);
  const auto last = static_cast<std::uint32_t>((offset + std::max<std::uint64_t>(bytes, 1) - 1) / chunk);
  return {first, last - first + 1};
}

std::map<std::uint64_t, Live>::iterator SessionState::holding(const void* memory) {
  const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - base());
  auto found = tensors.upper_bound(offset);
  if (found == tensors.begin()) return tensors.end();
  --found;
  return offset < found->first + std::max<std::uint64_t>(found->second.bytes.value, 1) ? found : tensors.end();
}

// Last words: whoever dies may hold the lock, so the books are read only where nobody does.
std::string SessionState::describe(std::uint32_t chunk) const {
  const std::uint64_t begin = std::uint64_t{chunk} * options.chunk.value, end = begin + options.chunk.value;
  std::array<char, 64> range;
  std::snprintf(range.data(), range.size(), "%p to %p", static_cast<const void*>(base() + begin),
                static_cast<const void*>(base() + end));
  std::string text = "chunk " + std::to_string(chunk) + " of the arena (" + range.data();
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock) return text + ")";
  auto tensor = tensors.upper_bound(begin);
  if (tensor != tensors.begin()) --tensor;
  for (int told = 0; tensor != tensors.end() && tensor->first < end && told < 3; ++tensor) {
    const auto& [offset, live] = *tensor;
    if (offset + live.bytes.value <= begin) continue;
    text += (told++ == 0 ? ", tensor " : ", ") +
            (live.name.empty() ? std::string("without a name") : "'" + live.name + "'") + " of " + readable(live.bytes);
  }
  return text + ")";
}

std::uint32_t SessionState::log_tensor(std::uint64_t offset, Live& live) {
  if (live.logged_in != step) {
    live.logged_in = step;
    live.index = static_cast<std::uint32_t>(log.tensors.size());
    log.tensors.push_back({.name = live.name,
                           .bytes = live.bytes,
                           .kind = live.kind,
                           .offset = offset,
                           .birth = 0,
                           .death = ~0u,
                           .birth_op = 0,
                           .death_op = -1,
                           .dies_at_seam = false,
                           .in_parts = false,
                           .small = live.small,
                           .shape = live.shape,
                           .site = live.site});
  }
  return live.index;
}

Site SessionState::site() const {
  Site where;
  if (layer) where.layer = log.layers[layer->value].name;
  if (op_depth > 0 && !log.ops.empty()) where.op = log.ops.back().name;
  return where;
}

std::optional<std::uint64_t> SessionState::planned_address(std::uint64_t bytes) {
  const std::uint32_t nth = allocations[bytes]++;
  if (bucket == nullptr) return std::nullopt;
  const auto list = bucket->addresses.find(bytes);
  if (list == bucket->addresses.end() || nth >= list->second.size() || !list->second[nth].usable) return std::nullopt;
  const std::uint64_t offset = list->second[nth].offset;
  const auto next = tensors.lower_bound(offset);
  if (next != tensors.end() && next->first < offset + bytes)
    return std::nullopt;  // somebody outlived what the profile saw
  if (next != tensors.begin()) {
    const auto& [before, live] = *std::prev(next);
    if (before + live.bytes.value > offset) return std::nullopt;
  }
  return offset;
}

// Slots of the slow tier for chunks [0, end): some ahead, or just these where the disk is nearly full.
Result<void> SessionState::reserve_slots(std::uint32_t end) {
  if (end <= slots_reserved) return {};
  constexpr std::uint32_t step_of_growth = 64;
  const std::uint32_t ahead = (end + step_of_growth - 1) / step_of_growth * step_of_growth;
  Result<void> grown;
  for (const std::uint32_t slots : {ahead, end}) {
    grown = engine->reserve_slots(slots);
    if (!grown) continue;
    slots_reserved = slots;
    break;
  }
  return grown;
}

// With the lock held: nobody may get a neighbour before the chunk is there. A chunk for which there was no room is
// tried again by the next who gets a place in it.
Result<void> SessionState::bear_slab(std::uint32_t chunk) {
  if (!unborn_slab.contains(chunk)) return {};
  if (auto born = engine->birth({chunk, 1}); !born) return born;
  if (auto held = engine->hold({chunk, 1}); !held) {
    engine->death({chunk, 1});
    return held;
  }
  unborn_slab.erase(chunk);
  return {};
}

void SessionState::give_back(std::uint64_t offset, const Live& live) {
  if (live.small) {
    heap->release_alone(offset, live.bytes.value);
  } else if (!live.planned) {
    heap->release(offset, live.bytes.value, live.lasting);
  }
}

Result<std::byte*> SessionState::allocate(const AllocateOptions& allocation) {
  const std::uint64_t bytes = std::max<std::uint64_t>(allocation.bytes.value, 1);
  std::unique_lock lock(mutex);
  if (allocation.alignment.value > 4096 || (allocation.alignment.value & (allocation.alignment.value - 1)) != 0)
    return Error{.cause = Cause::unsupported,
                 .message = "alignment must be a power of two of at most 4096 bytes",
                 .errno_value = 0};
  if (bytes > options.chunk.value * chunks)
    return Error{.cause = Cause::out_of_memory,
                 .message = "allocation of " + readable_exactly({bytes}) + " is larger than the arena",
                 .errno_value = 0};
  const bool small_one = heap->is_small(bytes) && allocation.alignment.value <= 64;
  const bool of_op = in_step && op_depth > 0 && !small_one && std::this_thread::get_id() == op_thread;
  if (of_op) before_birth(bytes, lock);
  std::optional<Heap::Place> place;
  bool planned = false;
  if (!small_one && !allocation.persistent && in_step) {
    if (const auto offset = planned_address(bytes)) {
      place = Heap::Place{.offset = *offset, .small = false, .new_slab_chunk = std::nullopt};
      planned = true;
    }
  }
  const bool alone = small_one && in_step && pages != nullptr;  // profiling: one tensor a page
  if (alone) {
    if (const auto offset = heap->allocate_alone(bytes))
      place = Heap::Place{.offset = *offset, .small = false, .new_slab_chunk = std::nullopt};
  }
  if (!place) place = heap->allocate(bytes, allocation.alignment.value, allocation.persistent);
  if (!place)
    return Error{.cause = Cause::out_of_memory, .message = "the arena's addresses are used up", .errno_value = 0};
  const ChunkRange range = chunks_of(place->offset, bytes);
  if (place->new_slab_chunk) unborn_slab.insert(*place->new_slab_chunk);
  Result<void> ready = reserve_slots(range.first + range.count);
  if (ready.ok() && place->small) ready = bear_slab(range.first);
  if (!ready) {
    if (place->small) heap->release_small(place->offset);
    if (!place->small)
      give_back(
          place->offset,
          Live{.bytes = {bytes}, .name = {}, .lasting = allocation.persistent, .planned = planned, .small = alone});
    return ready.error();
  }
  live_bytes += (bytes + 63) / 64 * 64;
  peak_bytes = std::max(peak_bytes, live_bytes);
  if (place->small) {
    small[place->offset] = static_cast<std::uint32_t>(bytes);
    return base() + place->offset;
  }
  Live& live = tensors[place->offset];
  live = Live{.bytes = {bytes},
              .name = std::string(allocation.name),
              .kind = allocation.kind,
              .lasting = allocation.persistent,
              .planned = planned,
              .small = alone,
              .logged_in = 0,
              .index = 0,
              .shape = {},
              .site = {}};
  if (in_step && (bucket == nullptr || allocation.persistent)) live.site = site();
  if (in_step) {
    const std::uint32_t index = log_tensor(place->offset, live);
    LoggedTensor& logged = log.tensors[index];
    logged.birth = ++events;
    logged.birth_op = static_cast<std::uint32_t>(log.ops.size()) - (op_depth > 0 ? 1 : 0);
    if (layer_phase == Phase::backward && logged.kind == TensorKind::activation)
      logged.kind = live.kind = TensorKind::gradient;
    if (pages != nullptr) pages->born(place->offset, bytes, index);
  }
  const std::uint64_t offset = place->offset;
  const bool watched = pages != nullptr && in_step;
  if (of_op && sections != nullptr) born_in_op.push_back(range);
  lock.unlock();
  if (auto born = engine->birth(range); !born) {
    lock.lock();
    live_bytes -= (bytes + 63) / 64 * 64;
    if (in_step) log.tensors[log_tensor(offset, tensors[offset])].death = ++events;
    if (pages != nullptr) pages->died(offset);
    give_back(offset, tensors.extract(offset).mapped());
    return born.error();
  }
  if (watched) expect_writes(offset, bytes);
  return base() + offset;
}

// Memory that was just allocated is written before it is read. Only of its whole pages, which are nobody else's.
void SessionState::expect_writes(std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (offset % page_size != 0) return;
  const ChunkRange range = chunks_of(offset, bytes);
  const std::uint64_t chunk = options.chunk.value, end = (offset + bytes + page_size - 1) / page_size * page_size;
  for (std::uint32_t c = range.first; c < range.first + range.count; ++c) {
    const std::uint64_t from = std::max(offset, c * chunk), to = std::min(end, (c + std::uint64_t{1}) * chunk);
    engine->expect_writes(base() + from, to - from, c);
  }
}

void SessionState::release(std::byte* memory) noexcept {
  const auto offset = static_cast<std::uint64_t>(memory - base());
  std::unique_lock lock(mutex);
  if (const auto found = small.find(offset); found != small.end()) {
    live_bytes -= (found->second + std::uint64_t{63}) / 64 * 64;
    small.erase(found);
    heap->release_small(offset);
    lock.unlock();
    return end_if_empty();
  }
  const auto found = tensors.find(offset);
  if (found == tensors.end())
    die("released memory of the arena that is not the beginning of a living tensor (released twice?)");
  Live& live = found->second;
  if (in_step) {
    LoggedTensor& logged = log.tensors[log_tensor(offset, live)];
    logged.death = ++events;
    logged.death_op = static_cast<std::int64_t>(log.ops.size()) - 1;
  }
  const std::uint64_t bytes = live.bytes.value;
  live_bytes -= (bytes + 63) / 64 * 64;
  if (pages != nullptr) pages->died(offset);
  const Live dead = std::move(live);
  tensors.erase(found);
  if (const auto born = std::find(born_in_op.begin(), born_in_op.end(), chunks_of(offset, bytes));
      born != born_in_op.end())
    born_in_op.erase(born);
  engine->death(chunks_of(offset, bytes));  // before the address can be given out again
  give_back(offset, dead);
  lock.unlock();
  end_if_empty();
}

void SessionState::end_if_empty() noexcept {
  if (open) return;
  std::unique_ptr<Engine> ended;
  {
    const std::lock_guard lock(mutex);
    if (engine == nullptr || !tensors.empty() || !small.empty()) return;
    ended = std::move(engine);
    last_bucket = nullptr;
    buckets.clear();
  }
  ended.reset();
  arena.empty();
}

}  // namespace detail

// --- scopes
// ------------------------------------------------------------------------------------------------------------

StepScope::~StepScope() { session_.state_->end_step(); }
OpScope::~OpScope() { session_.state_->end_op(); }

LayerScope::~LayerScope() {
  detail::SessionState& state = *session_.state_;
  const std::lock_guard lock(state.mutex);
  if (state.layer_stack.empty()) return;
  std::tie(state.layer, state.layer_phase) = state.layer_stack.back();
  state.layer_stack.pop_back();
}

ResidentScope::~ResidentScope() {
  if (state_ != nullptr && state_->engine != nullptr) state_->engine->release_hold({first_, count_});
}

// --- session
// -----------------------------------------------------------------------------------------------------------

Session::~Session() { detail::close_session(state_); }

Result<std::byte*> Session::allocate(const AllocateOptions& options) { return state_->allocate(options); }

void Session::release(std::byte* memory) noexcept {
  if (detail::SessionState* state = detail::owner_of(memory)) state->release(memory);
}

bool Session::owns(const void* memory) noexcept { return detail::owner_of(memory) != nullptr; }

void Session::label(const void* memory, std::string_view name, TensorKind kind) {
  const std::lock_guard lock(state_->mutex);
  if (detail::owner_of(memory) != state_) return;
  const auto found = state_->holding(memory);
  if (found == state_->tensors.end()) return;
  detail::Live& live = found->second;
  live.name.assign(name);
  live.kind = kind;
  if (!state_->in_step || live.logged_in != state_->step) return;
  LoggedTensor& logged = state_->log.tensors[live.index];
  logged.name = live.name;
  logged.kind = kind;
}

bool Session::wants_shapes() const noexcept {
  return state_->options.observer != nullptr && state_->in_step && state_->bucket == nullptr;
}

void Session::shape(const void* memory, std::span<const std::int64_t> sizes) {
  const std::lock_guard lock(state_->mutex);
  if (detail::owner_of(memory) != state_) return;
  const auto found = state_->holding(memory);
  if (found == state_->tensors.end() || !found->second.shape.empty()) return;
  detail::Live& live = found->second;
  live.shape.assign(sizes.begin(), sizes.end());
  if (state_->in_step && live.logged_in == state_->step) state_->log.tensors[live.index].shape = live.shape;
}

StepScope Session::step() {
  state_->begin_step();
  return StepScope(*this);
}

LayerScope Session::layer(std::string_view name, Phase phase) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->layer_stack.emplace_back(state_->layer, state_->layer_phase);
    state_->set_layer(name, phase);
  }
  return LayerScope(*this);
}

void Session::mark_layer(std::string_view name, Phase phase) {
  const std::lock_guard lock(state_->mutex);
  if (state_->layer_stack.empty()) state_->set_layer(name, phase);  // a layer scope, which the user opened, wins
}

OpScope Session::op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                    std::span<const Part> parts) {
  state_->begin_op(name, reads, writes, parts);
  return OpScope(*this);
}

ResidentScope Session::resident(const void* memory) {
  std::unique_lock lock(state_->mutex);
  if (detail::owner_of(memory) != state_) return ResidentScope(nullptr, 0, 0);
  const auto found = state_->holding(memory);
  if (found == state_->tensors.end()) return ResidentScope(nullptr, 0, 0);
  const ChunkRange range = state_->chunks_of(found->first, found->second.bytes.value);
  lock.unlock();
  if (auto held = state_->engine->hold(range); !held) {
    state_->message(held.error().message);
    return ResidentScope(nullptr, 0, 0);
  }
  return ResidentScope(state_, range.first, range.count);
}

Counters Session::counters() const noexcept {
  Counters counters = state_->engine->counters();
  const std::lock_guard lock(state_->mutex);
  counters.live_bytes = state_->live_bytes;
  counters.peak_bytes = state_->peak_bytes;
  counters.steps = state_->step;
  return counters;
}

std::optional<Error> Session::take_error() { return state_->engine->take_error(); }

Bytes Session::smallest_budget() const noexcept {
  return {std::uint64_t{state_->engine->largest_op_chunks()} * state_->options.chunk.value};
}

std::string_view Session::phase() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->phase();
}

std::string Session::mechanism() const { return state_->engine->mechanism(); }
std::string_view Session::tracker() const noexcept {
  return state_->tracker == nullptr ? std::string_view() : state_->tracker->name;
}

const Trace* Session::trace() const noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->last_bucket == nullptr ? nullptr : &state_->last_bucket->program;
}

std::vector<PlannedStep> Session::planned_steps() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<PlannedStep> steps;
  for (const auto& bucket : state_->buckets) {
    Trace trace = bucket->units.trace;
    // An op in place may be the first to touch a tensor: there is nothing yet that it could read.
    std::vector<bool> born(trace.tensors.size());
    for (std::size_t t = 0; t < born.size(); ++t) born[t] = trace.tensors[t].persistent;
    for (Op& op : trace.ops) {
      std::erase_if(op.reads, [&](TensorIndex t) { return !born[t.value]; });
      for (TensorIndex t : op.writes) born[t.value] = true;
    }
    Rows rows = state_->rows_of(*bucket);
    rows.always_near = {static_cast<std::uint32_t>(trace.tensors.size())};
    const Bytes always_near = {rows.held.value + bucket->unplanned * state_->options.chunk.value};
    if (always_near.value > 0) {  // no plan has it as a unit, but it takes room at every op
      for (Op& op : trace.ops) op.reads.push_back({static_cast<std::uint32_t>(trace.tensors.size())});
      trace.tensors.push_back({.name = "always near",
                               .bytes = always_near,
                               .kind = TensorKind::constant,
                               .persistent = true,
                               .shape = {},
                               .site = {}});
    }
    steps.push_back({.trace = std::move(trace),
                     .program = bucket->program_in_sections.value_or(bucket->program),
                     .steps = bucket->runs,
                     .rows = std::move(rows)});
  }
  return steps;
}

}  // namespace vedette
