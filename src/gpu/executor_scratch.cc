// Tensors of GPU memory that are dropped and recomputed: see moves/scratch.h.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "gpu/executor.h"

namespace vedette::detail {
namespace {

constexpr Bytes compared_at_once = 1_MiB;
constexpr unsigned char other_bytes = 0xa5;  // unwritten bytes show

}  // namespace

void GpuExecutor::come(const Part& part) {
  const cuda::CurrentAmongSeveral current(*device_);
  const std::lock_guard lock(mutex_);
  prepare(part);
}

bool GpuExecutor::drop(ChunkRange chunks) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const BlockIndex* const block = names_.block(chunks);
  return block != nullptr && places_->drop(*block);
}

PlaceExecutor::Place GpuExecutor::place_like(ChunkRange like) const {
  const auto planned = std::find_if(made_.begin(), made_.end(),
                                    [&](const OpMoves::Made& made) { return made.chunks.first() == like.first(); });
  if (planned != made_.end() && planned->place) return planned->place;
  const BlockIndex* const block = names_.block(like);
  return block == nullptr ? PlaceExecutor::Place() : places_->dropped_from(*block);
}

bool GpuExecutor::take_piece(Piece& piece) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto born = places_->allocate(piece.bytes, stream(), place_like(piece.like));
  if (born) names_.enter(piece.chunks.first(), born->block);
  return static_cast<bool>(born);
}

void GpuExecutor::adopt_piece(const Piece& from, ChunkRange to) noexcept {
  const std::lock_guard lock(mutex_);
  const BlockIndex *const made = names_.block(from.chunks), *const wanted = names_.block(to);
  VEDETTE_ASSERT(made != nullptr && wanted != nullptr);
  places_->adopt(*made, *wanted);
}

std::vector<GpuExecutor::BlockIndex> GpuExecutor::blocks_of(std::span<const ChunkRange> some,
                                                            std::span<const ChunkRange> others) const {
  std::vector<BlockIndex> blocks;
  for (const auto operands : {some, others})
    for (const ChunkRange chunks : operands)
      if (const BlockIndex* const block = names_.block(chunks)) blocks.push_back(*block);
  return blocks;
}

bool GpuExecutor::begin_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(places_->begin_again(blocks_of(sources, pieces), stream()));
}

void GpuExecutor::end_recipe(std::span<const ChunkRange> sources, std::span<const ChunkRange> pieces) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  places_->end_again(blocks_of(sources, pieces), stream());
}

void GpuExecutor::begin_aside(Aside what) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  times_.begin_aside(stream(), what);
}

void GpuExecutor::end_aside() noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  times_.end_aside(stream());
}

// --- a recipe is tried -----------------------------------------------------------------------------------------------

// Pinned memory beside the slots until the step ends: two pieces that are compared.
Result<std::byte*> GpuExecutor::staging() {
  if (staging_) return staging_->memory;
  staging_.emplace(device_, cuda::PinnedPool::Options{.piece = {2 * compared_at_once.value}});
  const auto taken = staging_->pool.take({2 * compared_at_once.value});
  if (!taken) {
    staging_.reset();
    return taken.error();
  }
  return staging_->memory = *taken;
}

bool GpuExecutor::spoil(const Piece& piece) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const BlockIndex block = *names_.block(piece.chunks);
  if (!places_->begin_again({&block, 1}, stream())) return false;
  const auto filled = device_->fill(stream(), places_->address(block), other_bytes, piece.bytes);
  places_->end_again({&block, 1}, stream());
  return static_cast<bool>(filled);
}

Result<bool> GpuExecutor::same_on_the_host(const BlockIndex (&both)[2], Bytes bytes) {
  const auto staged = staging();
  if (!staged) return staged.error();
  bool same = true;
  for (std::uint64_t at = 0; same && at < bytes.value; at += compared_at_once.value) {
    const Bytes part = {std::min(compared_at_once.value, bytes.value - at)};
    std::byte* to = *staged;
    for (const BlockIndex from : both) {
      const cuda::Address there = places_->address(from) + at;
      if (auto queued = device_->copy(stream(), reinterpret_cast<cuda::Address>(to), there, part); !queued)
        return queued.error();
      to += compared_at_once.value;
    }
    if (const int refused = device_->calls().stream_synchronize(stream()); refused != cuda::success)
      return device_->driver().error(refused, "waiting for an op that is tried again");
    same = std::memcmp(*staged, *staged + compared_at_once.value, part.value) == 0;
  }
  return same;
}

bool GpuExecutor::same_bytes(const Piece& piece) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const BlockIndex both[] = {*names_.block(piece.chunks), *names_.block(piece.like)};
  if (!places_->begin_again(both, stream())) return false;
  const auto told =
      options_.program->same_bytes(places_->address(both[0]), places_->address(both[1]), piece.bytes.value);
  const Result<bool> same = told ? Result<bool>(*told) : same_on_the_host(both, piece.bytes);
  places_->end_again(both, stream());
  return same && *same;
}

}  // namespace vedette::detail
