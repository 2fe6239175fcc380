// Samples of resident memory: see resident_sampler.h.
#include "resident_sampler.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace vedette::examples {

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::uint64_t sum = 0;
  while (status >> word) {
    if (word != "RssAnon:" && word != "RssShmem:") continue;
    std::uint64_t kilobytes = 0;
    status >> kilobytes;
    sum += kilobytes << 10;
  }
  return sum;
}

ResidentSampler::ResidentSampler()
    : before_(resident_bytes()), largest_(before_), thread_([this](const std::stop_token& stop) noexcept {
        while (!stop.stop_requested()) {
          // relaxed: one thread writes, and a reader that is late by a sample takes one of its own
          largest_.store(std::max(largest_.load(std::memory_order_relaxed), resident_bytes()),
                         std::memory_order_relaxed);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      }) {}

std::uint64_t ResidentSampler::largest_growth() const {
  const std::uint64_t largest = std::max(largest_.load(std::memory_order_relaxed), resident_bytes());
  return largest - std::min(before_, largest);
}

}  // namespace vedette::examples
