// An allocator in front of libtorch's own: see counting_allocator.h.
#include "counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace vedette::examples {
namespace {

class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = before_->allocate(bytes);
    void* const data = memory.get();
    memory.release_context();
    if (data != nullptr) add(data, bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t count) const override {
    default_copy_data(target, source, count);
  }

  std::uint64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    peak_ = live_;
  }

 private:
  void add(void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t rounded = (bytes + 63) / 64 * 64;
    sizes_[data] = rounded;
    peak_ = std::max(peak_, live_ += rounded);
  }
  static void release(void* data);

  c10::Allocator* const before_ = c10::GetDefaultCPUAllocator();
  std::mutex mutex_;
  std::unordered_map<void*, std::uint64_t> sizes_;
  std::uint64_t live_ = 0, peak_ = 0;
};

Counting& counting() {
  static Counting* const immortal = new Counting;  // storages point to it until the process ends
  return *immortal;
}

void Counting::release(void* data) {
  if (data == nullptr) return;
  Counting& self = counting();
  {
    const std::lock_guard lock(self.mutex_);
    const auto found = self.sizes_.find(data);
    if (found != self.sizes_.end()) {
      self.live_ -= found->second;
      self.sizes_.erase(found);
    }
  }
  self.before_->raw_deleter()(data);
}

}  // namespace

void count_allocations() {
  constexpr std::uint8_t above_the_default = 1;  // and below a guard's
  c10::SetCPUAllocator(&counting(), above_the_default);
}
std::uint64_t counted_peak_bytes() { return counting().peak(); }
void forget_peak() { counting().forget(); }

}  // namespace vedette::examples
