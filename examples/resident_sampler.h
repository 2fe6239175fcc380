// The growth of this process's memory since the sampler was made, from the kernel: the largest RssAnon + RssShmem of
// /proc/self/status, read fifty times a second by a thread. File pages (libraries) do not count.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

namespace vedette::examples {

std::uint64_t resident_bytes();  // RssAnon + RssShmem now; 0 where there is no /proc

class ResidentSampler {
 public:
  ResidentSampler();
  ResidentSampler(const ResidentSampler&) = delete;
  ResidentSampler& operator=(const ResidentSampler&) = delete;

  std::uint64_t largest_growth() const;  // until now; 0 if there was none

 private:
  const std::uint64_t before_;
  mutable std::atomic<std::uint64_t> largest_;
  std::jthread thread_;
};

}  // namespace vedette::examples
