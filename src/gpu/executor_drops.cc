// Tensors of GPU memory that are dropped and recomputed: see tensor_drops.h.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "gpu/executor.h"

namespace vedette::detail {
namespace {

constexpr Bytes piece = 1_MiB;               // of the compared bytes
constexpr unsigned char other_bytes = 0xa5;  // unwritten bytes show

}  // namespace

void GpuExecutor::come(const Part& part) {
  const std::lock_guard lock(mutex_);
  prepare(part);
}

bool GpuExecutor::drop_tensor(ChunkRange chunks) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const BlockIndex* const block = block_of(chunks);
  return block != nullptr && places_->drop(*block);
}

PlaceExecutor::Place GpuExecutor::place_like(ChunkRange like) const {
  const auto planned = std::find_if(made_.begin(), made_.end(),
                                    [&](const OpMoves::Made& made) { return made.chunks.first() == like.first(); });
  if (planned != made_.end() && planned->place) return planned->place;
  const BlockIndex* const block = block_of(like);
  return block == nullptr ? PlaceExecutor::Place() : places_->dropped_from(*block);
}

Result<void> GpuExecutor::born_like(ChunkRange chunks, Bytes bytes, ChunkRange like) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto born = places_->allocate(bytes, stream(), place_like(like));
  if (!born) return born.error();
  enter(born->block, chunks);
  return {};
}

void GpuExecutor::adopt_tensor(ChunkRange from, ChunkRange to) noexcept {
  const std::lock_guard lock(mutex_);
  const BlockIndex *const made = block_of(from), *const wanted = block_of(to);
  VEDETTE_ASSERT(made != nullptr && wanted != nullptr);
  places_->adopt(*made, *wanted);
}

std::vector<GpuExecutor::BlockIndex> GpuExecutor::blocks_of(std::span<const ChunkRange> operands) const {
  std::vector<BlockIndex> blocks;
  for (const ChunkRange chunks : operands)
    if (const BlockIndex* const block = block_of(chunks)) blocks.push_back(*block);
  return blocks;
}

Result<void> GpuExecutor::begin_again(std::span<const ChunkRange> operands) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  return places_->begin_again(blocks_of(operands), stream());
}

void GpuExecutor::end_again(std::span<const ChunkRange> operands) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  places_->end_again(blocks_of(operands), stream());
}

void GpuExecutor::begin_aside(Aside what) noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  aside_ = what;
  const Marks::Mark mark = times_.begin_aside(
      stream(), what == Aside::recomputation ? StreamTimes::Aside::recomputation : StreamTimes::Aside::trial);
  if (options_.reports != nullptr && what == Aside::recomputation) options_.reports->again_queues(stream(), mark);
}

void GpuExecutor::end_aside() noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const Marks::Mark mark = times_.end_aside(stream());
  if (options_.reports != nullptr && aside_ == Aside::recomputation) options_.reports->again_is_queued(stream(), mark);
  aside_.reset();
}

// --- a recipe is tried -----------------------------------------------------------------------------------------------

// Pinned memory beside the slots until the step ends: two pieces that are compared.
Result<std::byte*> GpuExecutor::staging() {
  if (staging_) return staging_->memory;
  staging_.emplace(device_, cuda::PinnedPool::Options{.piece = {2 * piece.value}});
  const auto taken = staging_->pool.take({2 * piece.value});
  if (!taken) {
    staging_.reset();
    return taken.error();
  }
  return staging_->memory = *taken;
}

Result<void> GpuExecutor::spoil(ChunkRange chunks, Bytes bytes) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const std::vector<BlockIndex> blocks = blocks_of({&chunks, 1});
  if (auto there = places_->begin_again(blocks, stream()); !there) return there;
  auto filled = device_->fill(stream(), places_->address(blocks.front()), other_bytes, bytes);
  places_->end_again(blocks, stream());
  return filled;
}

Result<bool> GpuExecutor::same_on_the_host(const ChunkRange (&both)[2], Bytes bytes) {
  const auto staged = staging();
  if (!staged) return staged.error();
  bool same = true;
  for (std::uint64_t at = 0; same && at < bytes.value; at += piece.value) {
    const Bytes part = {std::min(piece.value, bytes.value - at)};
    std::byte* to = *staged;
    for (const ChunkRange from : both) {
      const cuda::Address there = places_->address(*block_of(from)) + at;
      if (auto queued = device_->copy(stream(), reinterpret_cast<cuda::Address>(to), there, part); !queued)
        return queued.error();
      to += piece.value;
    }
    if (const int refused = device_->calls().stream_synchronize(stream()); refused != cuda::success)
      return device_->driver().error(refused, "waiting for an op that is tried again");
    same = std::memcmp(*staged, *staged + piece.value, part.value) == 0;
  }
  return same;
}

Result<bool> GpuExecutor::same_bytes(ChunkRange one, ChunkRange other, Bytes bytes) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const ChunkRange both[] = {one, other};
  const std::vector<BlockIndex> blocks = blocks_of(both);
  if (auto there = places_->begin_again(blocks, stream()); !there) return there.error();
  const auto told = options_.program->same_bytes(places_->address(blocks[0]), places_->address(blocks[1]), bytes.value);
  const Result<bool> same = told ? Result<bool>(*told) : same_on_the_host(both, bytes);
  places_->end_again(blocks, stream());
  return same;
}

}  // namespace vedette::detail
