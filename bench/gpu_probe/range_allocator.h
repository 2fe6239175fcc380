// Device memory for somebody else's allocator, all of it out of one reserved range, in chunks of 2 MiB with a frame
// each: as a GPU tier would hold it.
//
// An allocation is whole chunks, at the first hole that is large enough. What is freed is unmapped and its frames are
// released. Thread rule: any thread; calls are serialised. Errors: nullptr, and why in last_refusal().
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

#include "gpu_probe/device.h"

namespace vedette::gpu {

class RangeAllocator {
 public:
  static constexpr std::size_t chunk_bytes = 2 * mebibyte;

  RangeAllocator(const Gpu& gpu, std::size_t range_bytes) : gpu_(gpu), range_(gpu, range_bytes) {}
  ~RangeAllocator();
  RangeAllocator(const RangeAllocator&) = delete;
  RangeAllocator& operator=(const RangeAllocator&) = delete;

  void* allocate(std::size_t bytes);
  void free(void* memory);
  bool holds(std::uint64_t address) const { return address >= range_.at(0) && address < range_.at(range_.bytes()); }

  struct Counts {
    std::size_t bytes = 0, most_bytes = 0, allocations = 0, by_other_threads = 0;
    double milliseconds = 0;  // spent in the driver
  };
  Counts counts() const;
  std::string last_refusal() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    std::vector<Frame> frames;
  };
  std::size_t hole_for(std::size_t bytes) const;
  void take_back(std::size_t offset, std::size_t chunks) noexcept;

  const Gpu& gpu_;
  const Range range_;
  const std::thread::id maker_ = std::this_thread::get_id();
  mutable std::mutex guard_;
  std::map<std::size_t, Block> blocks_;  // by offset; guarded by guard_, as is the rest
  Counts counts_;
  std::string last_refusal_;
};

}  // namespace vedette::gpu
