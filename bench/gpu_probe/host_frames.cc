// Point 2: may host memory be a frame of the device's range, beside device frames, and how fast do kernels read and
// write it there?
//
// Device frames and pinned memory (cuMemHostAlloc, outside the range) stand beside it. A kernel goes through the memory
// in 16-byte words with all multiprocessors, as often as makes 64 MiB at least; small device frames come from the L2
// cache.
#include <algorithm>
#include <cstring>

#include "gpu_probe/groups.h"
#include "gpu_probe/transfer.h"
#include "os/devices.h"

namespace vedette::gpu {
namespace {

constexpr std::size_t least_bytes = 64 * mebibyte;  // of a timed transfer

struct Place {
  std::string name;
  Location location;
};

std::vector<Place> places(const Gpu& gpu) {
  std::vector<Place> all = {{.name = "device", .location = {.type = LocationType::device, .id = gpu.device}},
                            {.name = "host", .location = {.type = LocationType::host, .id = 0}}};
  for (const NumaNode& node : find_numa_nodes()) {
    const int number = static_cast<int>(node.number);
    all.push_back(
        {.name = "host_numa:" + std::to_string(number), .location = {.type = LocationType::host_numa, .id = number}});
  }
  return all;
}

void measure_rates(const Gpu& gpu, Address at, std::size_t bytes, int repetitions, Cell& cell) {
  Lane lane(gpu);
  const auto passes = static_cast<unsigned>(std::max<std::size_t>(1, least_bytes / bytes));
  for (int i = 0; i <= repetitions; ++i) {
    const double written = write_gb_per_s(gpu, lane, at, bytes, passes),
                 read = read_gb_per_s(gpu, lane, at, bytes, passes);
    if (i == 0) continue;  // the first touch of the memory
    cell.sample("write", written);
    cell.sample("read", read);
  }
}

// The frame lies behind a device frame in one range.
void measure_place(const Gpu& gpu, const Place& place, std::size_t bytes, int repetitions, Cell& cell) {
  const std::size_t step = granularity(gpu, place.location), beside = std::max(step, 2 * mebibyte);
  cell.fact("granularity", step);
  const Range range(gpu, beside + bytes, beside);
  const Frame device_frame(gpu, beside);
  const Mapped device_chunk(gpu, range.at(0), device_frame);
  const Frame frame(gpu, bytes, place.location);
  const Mapped chunk(gpu, range.at(beside), frame);
  measure_rates(gpu, range.at(beside), bytes, repetitions, cell);
}

// What a kernel wrote into the frame, read by the processor at the same address.
void measure_processor_access(const Gpu& gpu, const Place& place, Cell& cell) {
  const std::size_t bytes = std::max(granularity(gpu, place.location), 2 * mebibyte);
  const Range range(gpu, bytes, bytes);
  const Frame frame(gpu, bytes, place.location);
  const Mapped chunk(gpu, range.at(0), frame);
  const AccessDescription host{.location = place.location};
  gpu.cuda.set_access(range.at(0), bytes, &host, 1);
  Lane lane(gpu);
  write_gb_per_s(gpu, lane, range.at(0), bytes, 1);  // fills it with 7
  const auto* const word = reinterpret_cast<volatile std::uint32_t*>(range.at(0));
  cell.fact("processor_reads", *word == 7 ? "what the kernel wrote" : "other bytes");
}

// Of two frames of different kinds, one behind the other: bytes that a copy brings, takes away, and moves from one to
// the other, and one copy over both. `shared`: the processor has access to the host's, too.
void measure_copies_across(const Gpu& gpu, const Place& place, bool shared, Cell& cell) {
  const std::size_t bytes = std::max(granularity(gpu, place.location), 2 * mebibyte);
  const Range range(gpu, 2 * bytes, bytes);
  const Frame device_frame(gpu, bytes), host_frame(gpu, bytes, place.location);
  const Mapped device_chunk(gpu, range.at(0), device_frame), host_chunk(gpu, range.at(bytes), host_frame);
  if (shared) {
    const AccessDescription host{.location = place.location};
    gpu.cuda.set_access(range.at(bytes), bytes, &host, 1);
  }
  const Pinned given(gpu, 2 * bytes), taken(gpu, 2 * bytes);
  Lane lane(gpu);
  const auto copied = [&](Address to, Address from, std::size_t size) {
    gpu.cuda.copy(to, from, size, lane.stream.get());
    lane.stream.wait();
  };
  const auto tell = [&](const char* quantity, std::size_t at, std::size_t size, std::byte expected) {
    const std::byte* const first = taken.data() + at;
    const bool right = std::all_of(first, first + size, [&](std::byte each) { return each == expected; });
    cell.fact(quantity, right ? "right" : "wrong bytes");
  };
  std::memset(given.data(), 7, 2 * bytes);
  copied(range.at(bytes), given.address(), bytes);
  copied(taken.address(), range.at(bytes), bytes);
  tell("to_and_from_the_host_s", 0, bytes, std::byte{7});
  std::memset(given.data(), 8, 2 * bytes);
  copied(range.at(0), given.address(), bytes);
  copied(range.at(bytes), range.at(0), bytes);
  copied(taken.address(), range.at(bytes), bytes);
  tell("from_one_to_the_other", 0, bytes, std::byte{8});
  std::memset(given.data(), 9, 2 * bytes);
  copied(range.at(0), given.address(), 2 * bytes);
  copied(taken.address(), range.at(0), 2 * bytes);
  tell("over_both", 0, 2 * bytes, std::byte{9});
}

}  // namespace

void measure_host_frames(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const std::vector<std::size_t> sizes =
      recorder.quick() ? std::vector<std::size_t>{2} : std::vector<std::size_t>{2, 256};
  const int repetitions = recorder.repetitions(15);
  const std::vector<Quantity> rates = {{"read", "GB/s"}, {"write", "GB/s"}};
  for (const std::size_t size : sizes) {
    for (const Place& place : places(gpu)) {
      recorder.measure(2, "frame", {{"location", place.name}, {"mib", size}},
                       {{"granularity", ""}, {"read", "GB/s"}, {"write", "GB/s"}},
                       [&](Cell& cell) { measure_place(gpu, place, size * mebibyte, repetitions, cell); });
    }
    recorder.measure(2, "pinned", {{"location", "cuMemHostAlloc"}, {"mib", size}}, rates, [&](Cell& cell) {
      const Pinned memory(gpu, size * mebibyte);
      measure_rates(gpu, memory.address(), size * mebibyte, repetitions, cell);
    });
  }
  for (const Place& place : places(gpu)) {
    if (place.location.type == LocationType::device) continue;
    recorder.measure(2, "frame", {{"location", place.name}}, {{"processor_reads", ""}},
                     [&](Cell& cell) { measure_processor_access(gpu, place, cell); });
    for (const bool shared : {false, true})
      recorder.measure(2, "frames_of_two_kinds", {{"location", place.name}, {"processor_has_access", shared}},
                       {{"to_and_from_the_host_s", ""}, {"from_one_to_the_other", ""}, {"over_both", ""}},
                       [&](Cell& cell) { measure_copies_across(gpu, place, shared, cell); });
  }
}

}  // namespace vedette::gpu
