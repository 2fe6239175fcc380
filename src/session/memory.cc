// Tensors come and go: places, chunks in fast memory, entries of the log.
#include "session/memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/readable.h"
#include "engine/watched_frames.h"
#include "session/fast_memory.h"

namespace vedette::detail {

// Last words: the thread that dies may hold the lock, so tensors are named only where no thread does.
std::string Memory::describe(ChunkIndex chunk) const {
  const std::byte* const begin = arena_.base() + chunk.value * options_.chunk.value;
  std::array<char, 64> range;
  std::snprintf(range.data(), range.size(), "%p to %p", static_cast<const void*>(begin),
                static_cast<const void*>(begin + options_.chunk.value));
  std::string text = "chunk " + std::to_string(chunk.value) + " of the arena (" + range.data();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) text += arena_.names_in(chunk, 3);
  return text + ")";
}

// --- births ----------------------------------------------------------------------------------------------------------

namespace {

// Why no memory can be given for `allocation` in an arena of `arena` bytes, whatever is free.
std::optional<Error> refusal(const AllocateOptions& allocation, Bytes arena) {
  if (allocation.alignment.value > 4096 || (allocation.alignment.value & (allocation.alignment.value - 1)) != 0)
    return Error{.cause = Cause::unsupported, .message = "alignment must be a power of two of at most 4096 bytes"};
  if (allocation.bytes > arena)
    return Error{.cause = Cause::out_of_memory,
                 .message = "allocation of " + readable_exactly(allocation.bytes) + " is larger than the arena"};
  return std::nullopt;
}

}  // namespace

Result<std::byte*> Memory::allocate(const AllocateOptions& allocation) {
  const std::uint64_t bytes = std::max<std::uint64_t>(allocation.bytes.value, 1);
  if (auto refused = refusal(allocation, arena_.bytes())) return *std::move(refused);
  const bool of_op =
      !arena_.is_small(bytes, allocation.alignment.value) && !allocation.scratch && steps_.ops().runs_on_this_thread();
  if (of_op) steps_.ops().before_birth(bytes);
  Arena::Place place;
  bool watched = false;
  {
    const std::lock_guard lock(mutex_);
    auto taken = take_place(allocation, bytes);
    if (!taken) return taken.error();
    place = *taken;
    if (place.slab) {
      arena_.add_small(place);
      return arena_.base() + place.offset;
    }
    watched = log_birth(place, allocation);
    if (of_op) steps_.ops().made(place.chunks);
  }
  auto born = allocation.copied_from == 0
                  ? executor_->born(place.chunks, {place.bytes})
                  : executor_->born_as_copy(place.chunks, {place.bytes}, allocation.copied_from);
  if (!born) {
    const std::lock_guard lock(mutex_);
    steps_.wake();
    undo_birth(place);
    return born.error();
  }
  if (watched) expect_writes(place);
  return arena_.base() + place.offset;
}

// A small tensor on pages of its own has an entry of some hundred bytes in the log. In a step with this many entries
// the others go to the slab, where they have none.
constexpr std::size_t most_logged_for_small = 16'384;

Result<Arena::Place> Memory::take_place(const AllocateOptions& allocation, std::uint64_t bytes) {
  const bool small = arena_.is_small(bytes, allocation.alignment.value);
  Arena::Wanted wanted{.bytes = bytes,
                       .alignment = allocation.alignment.value,
                       .lasting = allocation.persistent,
                       .alone = small && !allocation.scratch && logger_.running() &&
                                steps_.profiling().pages() != nullptr &&  // one tensor a page
                                logger_.log().tensors.size() < most_logged_for_small};
  if (!small && !allocation.persistent && !allocation.scratch && logger_.running()) {
    const std::uint32_t n = logger_.next_of_size(bytes);
    const AddressPlan* const addresses = plans_.addresses();
    const auto address = addresses != nullptr ? addresses->nth(bytes, n) : std::nullopt;
    // A tensor may have outlived its life in the profile.
    if (address && arena_.room_at(address->offset, bytes))
      (address->in_zone ? wanted.planned : wanted.again) = address->offset;
  }
  // In chunks of its own: others may be dropped, and are not recomputed while a recipe runs.
  const bool own_chunks = allocation.scratch && !small;
  const auto take = [&] {
    if (own_chunks) wanted.planned = arena_.reserve_zone(arena_.whole_chunks(bytes));
    return own_chunks && !wanted.planned ? std::nullopt : arena_.take(wanted);
  };
  auto place = take();
  while (!place && steps_.caller() != Executor::Caller::another_thread && plans_.retire_idle_bucket()) place = take();
  if (!place) return Error{.cause = Cause::out_of_memory, .message = "the arena's addresses are used up"};
  if (auto there = ready(*place); !there) {
    arena_.give_back(*place);
    return there.error();
  }
  return *place;
}

// A slab chunk for which there was no room is tried again by the next allocation in it.
Result<void> Memory::ready(const Arena::Place& place) {
  const ChunkIndex chunk = place.chunks.first();
  if (!place.slab || !arena_.slab_is_unborn(chunk)) return {};
  if (auto born = executor_->born(place.chunks, {place.bytes}); !born) return born;
  const bool wanted = arena_.slab_chunks_that_stay() < most_slab_chunks_that_stay(plans_.frames());
  arena_.slab_is_born(chunk, wanted && executor_->hold(place.chunks).ok());
  return {};
}

bool Memory::log_birth(const Arena::Place& place, const AllocateOptions& allocation) {
  const bool in_step = logger_.running() && !allocation.scratch;
  Live what;
  what.scratch = allocation.scratch;
  what.name = std::string(allocation.name);
  what.kind = in_step ? logger_.kind_of_birth(allocation.kind) : allocation.kind;
  if (in_step && (plans_.current() == nullptr || allocation.persistent)) what.site = logger_.site(steps_.ops().runs());
  const Live& live = arena_.add(place, std::move(what));
  return in_step && steps_.born(place, live);
}

void Memory::undo_birth(const Arena::Place& place) {
  steps_.unborn(place);
  const auto dead = arena_.remove(place.offset);
  if (!dead) return;
  arena_.free_place(place.offset, *dead);
  if (dead->scratch) arena_.release_zone(place.offset, arena_.whole_chunks(dead->bytes.value));
}

// Memory that was just allocated is written before it is read. Only of its whole pages, which no other tensor shares.
void Memory::expect_writes(const Arena::Place& place) noexcept {
  engine::WatchedFrames* const frames = executor_->pages();
  if (frames == nullptr || place.offset % page_size != 0) return;
  const std::uint64_t chunk = options_.chunk.value,
                      end = (place.offset + place.bytes + page_size - 1) / page_size * page_size;
  for (const ChunkIndex c : place.chunks) {
    const std::uint64_t from = std::max(place.offset, c.value * chunk),
                        to = std::min(end, (c.value + std::uint64_t{1}) * chunk);
    frames->expect_writes(arena_.base() + from, to - from, c);
  }
}

// --- deaths ----------------------------------------------------------------------------------------------------------

void Memory::release(std::byte* memory) noexcept {
  const std::uint64_t offset = arena_.offset_of(memory);
  while (const auto source = release_or_keep(offset)) steps_.drops().recomputer()->make_before_death(*source);
}

// Nullopt: the tensor is dead. Otherwise its number in the log: a group that is made from it has to be made first.
std::optional<std::uint32_t> Memory::release_or_keep(std::uint64_t offset) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto small = arena_.remove_small(offset)) {
    if (!small->last) return std::nullopt;
    executor_->died(ChunkRange::one(small->chunk));
    arena_.free_slab_chunk(small->chunk);
    return std::nullopt;
  }
  if (const auto source = steps_.drops().keeps(offset)) return source;
  const auto dead = arena_.remove(offset);
  if (!dead) die("released memory of the arena that is not the beginning of a living tensor (released twice?)");
  const ChunkRange chunks = arena_.chunks_of(offset, dead->bytes.value);
  steps_.died(offset, *dead, chunks);
  executor_->died(chunks);  // before the address can be given out again
  arena_.free_place(offset, *dead);
  if (dead->scratch) arena_.release_zone(offset, arena_.whole_chunks(dead->bytes.value));
  return std::nullopt;
}

// --- what the program says of its memory -----------------------------------------------------------------------------

void Memory::label(const void* memory, std::string_view name, TensorKind kind) {
  const std::lock_guard lock(mutex_);
  if (!arena_.has(memory)) return;
  const auto found = arena_.holding(memory);
  if (found == arena_.tensors().end()) return;
  arena_.label(found->first, name, kind);
  logger_.label(found->first, kind);
}

Result<void> Memory::place(std::string_view names, std::string_view tier, Session::Placement as) {
  const auto refusal = [&](std::string why) {
    return Error{Cause::unsupported, "place(\"" + std::string(names) + "\"): " + std::move(why), 0};
  };
  const bool fast = tier == "fast", rule = as == Session::Placement::rule;
  if (names.empty()) return refusal("no tensor is named so; write a pattern such as \"*.exp_avg*\"");
  if (!fast && tier != "slow")
    return refusal('"' + std::string(tier) + "\" is no place for tensors; write \"fast\" or \"slow\"");
  if (!fast && (plans_.machine().tiers.size() < 2 || !plans_.machine().tiers[1].addressable))
    return refusal("nothing can be used in the slow memory of \"" + options_.slow +
                   "\" without coming back; it can with slow = \"numa:1\", or \"host@cxl-2025\" to try it");
  const std::lock_guard lock(mutex_);
  logger_.named_places().add(
      names, fast ? (rule ? Wish::fast_rule : Wish::fast_hint) : (rule ? Wish::slow_rule : Wish::slow_hint));
  return {};
}

void Memory::shape(const void* memory, std::span<const std::int64_t> sizes) {
  const std::lock_guard lock(mutex_);
  if (!arena_.has(memory)) return;
  const auto found = arena_.holding(memory);
  if (found != arena_.tensors().end()) arena_.shape(found->first, sizes);
}

bool Memory::may_be_dropped(const void* memory) const noexcept {
  const std::lock_guard lock(mutex_);
  if (!arena_.has(memory)) return false;
  const auto found = arena_.holding(memory);
  return found != arena_.tensors().end() && !found->second.small;
}

// The kernel of a recipe exports and holds again what its op has exported and held.
void Memory::others_write(const void* memory) {
  Recomputer* const recomputer = steps_.drops().recomputer();
  if (recomputer == nullptr || RecipeRuns::run_here()) return;
  std::optional<std::uint32_t> written;
  {
    const std::lock_guard lock(mutex_);
    if (!arena_.has(memory)) return;
    if (const auto found = arena_.holding(memory); found != arena_.tensors().end())
      written = steps_.drops().held(found->first);
  }
  if (written) recomputer->make({}, {&*written, 1});
}

Result<std::optional<ChunkRange>> Memory::hold(const void* memory, std::chrono::milliseconds patience) {
  Recomputer* const recomputer = RecipeRuns::run_here() ? nullptr : steps_.drops().recomputer();
  const bool made_first = recomputer != nullptr && executor_->traits().whole_tensors;
  ChunkRange chunks;
  std::vector<std::uint32_t> written;  // tensors that are recomputed from it are made before
  {
    const std::lock_guard lock(mutex_);
    if (!arena_.has(memory)) return std::optional<ChunkRange>();
    const auto found = arena_.holding(memory);
    if (found != arena_.tensors().end()) {
      chunks = arena_.chunks_of(found->first, found->second.bytes.value);
      if (recomputer != nullptr)
        if (const auto logged = steps_.drops().held(found->first)) written.push_back(*logged);
    } else if (const auto small = arena_.slab_chunk_that_may_leave(memory)) {
      chunks = ChunkRange::one(*small);
    } else {
      return std::optional<ChunkRange>();
    }
  }
  if (!written.empty()) recomputer->make({}, written);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    if (made_first) recomputer->make({&chunks, 1}, {});
    const auto held = executor_->hold(chunks);
    if (held) return std::optional(chunks);
    if (made_first && held.error().cause == Cause::infeasible) continue;  // the op thread has dropped it meanwhile
    if (std::chrono::steady_clock::now() < deadline) {                    // an op ends, or another scope
      constexpr std::chrono::milliseconds between_attempts{1};
      std::this_thread::sleep_for(between_attempts);
      continue;
    }
    return held.error();
  }
}

void Memory::release_hold(ChunkRange chunks) noexcept {
  if (executor_ != nullptr) executor_->release_hold(chunks);
}

}  // namespace vedette::detail
