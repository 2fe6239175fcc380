#include "cli/remap_time.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "os/chunk_memory.h"

namespace vedette::cli {
namespace {

// Computes on the other processors for as long as it lives, or on as many of them as the limit of threads allows.
class Busy {
 public:
  Busy() {
    try {
      for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads_.emplace_back([this] { compute(); });
    } catch (const std::system_error&) {
    }
  }
  ~Busy() {
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void compute() const {
    // relaxed: nothing is handed over
    for (volatile std::uint64_t count = 0; !stop_.load(std::memory_order_relaxed);) count = count + 1;
  }

  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

Nanoseconds measure_remap(Bytes chunk) {
  constexpr std::size_t rounds = 500;
  auto arena = Mapping::reserve({4 * chunk.value}, chunk);
  if (!arena) return {};
  const auto memory = open_best_memory(
      {.arena = arena->data(), .chunks = 4, .frames = 2, .chunk_bytes = chunk, .on_fault = [](const Fault&) {}});
  if (!memory) return {};
  std::memset((*memory)->parked({0}), 1, chunk.value);
  const Busy others;
  std::vector<std::int64_t> taken;
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto began = std::chrono::steady_clock::now();
    (*memory)->show({0}, {0});
    const auto shown = std::chrono::steady_clock::now();
    arena->data()[0] = std::byte{2};
    const auto touched = std::chrono::steady_clock::now();
    if (!(*memory)->hide({0}, {0})) return {};
    const auto hidden = std::chrono::steady_clock::now();
    taken.push_back(std::chrono::nanoseconds((shown - began) + (hidden - touched)).count() / 2);
  }
  std::nth_element(taken.begin(), taken.begin() + rounds / 2, taken.end());
  return {taken[rounds / 2]};
}

}  // namespace vedette::cli
