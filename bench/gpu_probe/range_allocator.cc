// See range_allocator.h.
#include "gpu_probe/range_allocator.h"

#include <algorithm>

namespace vedette::gpu {

RangeAllocator::~RangeAllocator() {
  for (const auto& [offset, block] : blocks_) take_back(offset, block.frames.size());
}

std::size_t RangeAllocator::hole_for(std::size_t bytes) const {
  std::size_t at = 0;
  for (const auto& [offset, block] : blocks_) {
    if (offset - at >= bytes) return at;
    at = offset + block.bytes;
  }
  if (range_.bytes() - at < bytes) throw Refused("the range is full");
  return at;
}

void* RangeAllocator::allocate(std::size_t bytes) {
  const std::lock_guard lock(guard_);
  const double begin = now_us();
  bytes = (bytes + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
  std::size_t offset = 0, mapped = 0;
  Block block{.bytes = bytes, .frames = {}};
  try {
    gpu_.make_current();  // the caller may be a thread of its own
    offset = hole_for(bytes);
    for (; mapped * chunk_bytes < bytes; ++mapped) {
      block.frames.emplace_back(gpu_, chunk_bytes, Location{.type = LocationType::device, .id = gpu_.device});
      gpu_.cuda.map(range_.at(offset + mapped * chunk_bytes), chunk_bytes, 0, block.frames.back().get(), 0);
    }
    const AccessDescription access = access_for_device(gpu_);
    gpu_.cuda.set_access(range_.at(offset), bytes, &access, 1);
  } catch (const Refused& refused) {
    take_back(offset, mapped);
    last_refusal_ = refused.what();
    return nullptr;
  }
  blocks_.emplace(offset, std::move(block));
  counts_.bytes += bytes;
  counts_.most_bytes = std::max(counts_.most_bytes, counts_.bytes);
  ++counts_.allocations;
  if (std::this_thread::get_id() != maker_) ++counts_.by_other_threads;
  counts_.milliseconds += (now_us() - begin) * 1e-3;
  return reinterpret_cast<void*>(range_.at(offset));
}

void RangeAllocator::free(void* memory) {
  const std::lock_guard lock(guard_);
  const double begin = now_us();
  const auto block = blocks_.find(reinterpret_cast<Address>(memory) - range_.at(0));
  if (block == blocks_.end()) {
    last_refusal_ = "freeing what was not allocated";
    return;
  }
  take_back(block->first, block->second.frames.size());
  counts_.bytes -= block->second.bytes;
  blocks_.erase(block);
  counts_.milliseconds += (now_us() - begin) * 1e-3;
}

void RangeAllocator::take_back(std::size_t offset, std::size_t chunks) noexcept {
  for (std::size_t i = 0; i < chunks; ++i) gpu_.cuda.unmap.error(range_.at(offset + i * chunk_bytes), chunk_bytes);
}

RangeAllocator::Counts RangeAllocator::counts() const {
  const std::lock_guard lock(guard_);
  return counts_;
}

std::string RangeAllocator::last_refusal() const {
  const std::lock_guard lock(guard_);
  return last_refusal_;
}

}  // namespace vedette::gpu
