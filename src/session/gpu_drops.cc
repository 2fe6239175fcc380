// Tensors of GPU memory that are dropped and recomputed: see tensor_drops.h.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "session/gpu_executor.h"

namespace vedette::detail {
namespace {

constexpr Bytes piece = 1_MiB;     // of the compared bytes
constexpr int other_bytes = 0xa5;  // unwritten bytes show

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
  aside_runs_ = true;
  times_.begin_aside(stream(),
                     what == Aside::recomputation ? StreamTimes::Aside::recomputation : StreamTimes::Aside::trial);
  if (options_.reports != nullptr && what == Aside::recomputation) options_.reports->again_queues(stream());
}

void GpuExecutor::end_aside() noexcept {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  aside_runs_ = false;
  times_.end_aside(stream());
  if (options_.reports != nullptr) options_.reports->again_is_queued(stream());
}

// --- a recipe is tried -----------------------------------------------------------------------------------------------

// Pinned memory beside the slots until the step ends: one piece that is spoiled, and two that are compared.
Result<std::byte*> GpuExecutor::staging() {
  if (staging_) return staging_->memory;
  staging_.emplace(device_, cuda::PinnedPool::Options{.most = {}, .piece = {3 * piece.value}});
  const auto taken = staging_->pool.take({3 * piece.value});
  if (!taken) {
    staging_.reset();
    return taken.error();
  }
  std::memset(*taken, other_bytes, piece.value);
  return staging_->memory = *taken;
}

template <typename Each>  // Result<void>(device addresses' offset, bytes)
Result<void> GpuExecutor::in_pieces(std::span<const ChunkRange> operands, Bytes bytes, const Each& each) {
  const std::vector<BlockIndex> blocks = blocks_of(operands);
  if (auto there = places_->begin_again(blocks, stream()); !there) return there;
  Result<void> done;
  for (std::uint64_t at = 0; at < bytes.value && done; at += piece.value)
    done = each(at, Bytes{std::min(piece.value, bytes.value - at)});
  places_->end_again(blocks, stream());
  return done;
}

Result<void> GpuExecutor::spoil(ChunkRange chunks, Bytes bytes) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto staged = staging();
  if (!staged) return staged.error();
  return in_pieces({&chunks, 1}, bytes, [&](std::uint64_t at, Bytes part) {
    return device_->copy(stream(), places_->address(*block_of(chunks)) + at, reinterpret_cast<cuda::Address>(*staged),
                         part);
  });
}

Result<bool> GpuExecutor::same_bytes(ChunkRange one, ChunkRange other, Bytes bytes) {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto staged = staging();
  if (!staged) return staged.error();
  const ChunkRange both[] = {one, other};
  std::byte *const first = *staged + piece.value, *const second = first + piece.value;
  bool same = true;
  const auto compare = [&](std::uint64_t at, Bytes part) -> Result<void> {
    const auto bring = [&](std::byte* to, ChunkRange from) {
      return device_->copy(stream(), reinterpret_cast<cuda::Address>(to), places_->address(*block_of(from)) + at, part);
    };
    if (auto queued = bring(first, one); !queued) return queued;
    if (auto queued = bring(second, other); !queued) return queued;
    if (const int refused = device_->calls().stream_synchronize(stream()); refused != cuda::success)
      return device_->driver().error(refused, "waiting for an op that is tried again");
    same = same && std::memcmp(first, second, part.value) == 0;
    return {};
  };
  if (auto compared = in_pieces(both, bytes, compare); !compared) return compared.error();
  return same;
}

}  // namespace vedette::detail
