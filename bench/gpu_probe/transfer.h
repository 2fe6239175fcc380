// Timed transfers: by the copy engines and by kernels, in GB/s (1e9 bytes) between two events of a stream.
#pragma once
#include <algorithm>
#include <cstdint>

#include "gpu_probe/device.h"

namespace vedette::gpu {

// A stream with the events around what is timed on it.
struct Lane {
  explicit Lane(const Gpu& gpu) : stream(gpu), begin(gpu), end(gpu) {}
  Stream stream;
  Event begin, end;

  template <class Work>
  double time_us(const Work& work) {
    begin.record(stream);
    work();
    end.record(stream);
    end.wait();
    return std::max(0.1, end.us_since(begin));  // the clock's resolution is 0.5 us
  }
};

inline double gb_per_s(std::size_t bytes, double us) { return static_cast<double>(bytes) / us * 1e-3; }

inline double copy_gb_per_s(const Gpu& gpu, Lane& lane, Address to, Address from, std::size_t bytes) {
  return gb_per_s(bytes, lane.time_us([&] { gpu.cuda.copy(to, from, bytes, lane.stream.get()); }));
}

// All of the device reads the bytes `passes` times.
inline double read_gb_per_s(const Gpu& gpu, Lane& lane, Address from, std::size_t bytes, unsigned passes) {
  return gb_per_s(bytes * passes, lane.time_us([&] {
    for (unsigned i = 0; i < passes; ++i) {
      launch(gpu, gpu.kernels.read, whole_device(gpu), lane.stream, from, std::uint64_t{bytes / 16},
             gpu.word_address(Word::sink));
    }
  }));
}

inline double write_gb_per_s(const Gpu& gpu, Lane& lane, Address to, std::size_t bytes, unsigned passes) {
  return gb_per_s(bytes * passes, lane.time_us([&] {
    for (unsigned i = 0; i < passes; ++i) {
      launch(gpu, gpu.kernels.write, whole_device(gpu), lane.stream, to, std::uint64_t{bytes / 16}, std::uint32_t{7});
    }
  }));
}

}  // namespace vedette::gpu
