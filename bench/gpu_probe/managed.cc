// Point 4: what do a fault of the device and a prefetch of managed memory cost, a block of 2 MiB; is the kernel's own
// memory (HMM, ATS) there?
//
// Small on purpose: 64 MiB, a GiB for large prefetches, and never more than a quarter of what is free on the device. A
// program that asks for more managed memory than the card has can hang it. HMM and ATS are asked for, not tried.
#include "gpu_probe/groups.h"
#include "gpu_probe/managed_memory.h"
#include "gpu_probe/transfer.h"

namespace vedette::gpu {
namespace {

constexpr Grid one_thread{.blocks = 1, .threads = 1};

void touch_by_host(const ManagedMemory& memory, std::size_t step) {
  auto* const words = reinterpret_cast<volatile std::uint32_t*>(memory.address());
  for (std::size_t at = 0; at < memory.bytes(); at += step) words[at / sizeof(std::uint32_t)] = 3;
}

// Microseconds a block when the device touches one word of each.
double fault_by_device(const Gpu& gpu, Lane& lane, const ManagedMemory& memory, Grid grid) {
  const double us = lane.time_us([&] {
    launch(gpu, gpu.kernels.touch, grid, lane.stream, memory.address(), std::uint64_t{block_bytes},
           std::uint64_t{memory.blocks()}, gpu.word_address(Word::sink));
  });
  return us / static_cast<double>(memory.blocks());
}

// one_by_one: a thread of the device touches one word of each block. at_once: a thread for each. resident: the same
// without faults. all_bytes: the whole device reads every byte. back_by_host: the host touches one word of each.
void measure_faults(const Gpu& gpu, const ManagedMemory& memory, int repetitions, Cell& cell) {
  Lane lane(gpu);
  for (int i = 0; i < repetitions; ++i) {
    touch_by_host(memory, 4096);
    cell.sample("one_by_one", fault_by_device(gpu, lane, memory, one_thread));
    cell.sample("resident", fault_by_device(gpu, lane, memory, one_thread));
    const double begin = now_us();
    touch_by_host(memory, block_bytes);
    cell.sample("back_by_host", (now_us() - begin) / static_cast<double>(memory.blocks()));
    touch_by_host(memory, 4096);
    cell.sample("at_once",
                fault_by_device(gpu, lane, memory, {.blocks = static_cast<unsigned>(memory.blocks()), .threads = 1}));
    touch_by_host(memory, 4096);
    const double us =
        1e-3 * static_cast<double>(memory.bytes()) / read_gb_per_s(gpu, lane, memory.address(), memory.bytes(), 1);
    cell.sample("all_bytes", us / static_cast<double>(memory.blocks()));
  }
}

struct Way {
  Location to, back;
  std::size_t block = block_bytes;  // of one call
};

void measure_prefetch(const Gpu& gpu, const ManagedMemory& memory, const Way& way, int repetitions, Cell& cell) {
  Lane lane(gpu);
  const std::size_t block = std::min(way.block, memory.bytes());
  const auto blocks = static_cast<double>(memory.bytes() / block);
  const auto prefetch_all = [&](Location place) {
    for (std::size_t at = 0; at < memory.bytes(); at += block)
      gpu.cuda.prefetch(memory.address() + at, block, place, 0, lane.stream.get());
  };
  for (int i = 0; i < repetitions; ++i) {
    touch_by_host(memory, 4096);
    prefetch_all(way.back);
    lane.stream.wait();
    double issued = 0;
    const double begin = now_us();
    lane.time_us([&] {
      prefetch_all(way.to);
      issued = now_us() - begin;
    });
    cell.sample("issue", issued / blocks);
    cell.sample("whole", (now_us() - begin) / blocks);
    cell.sample("rate", gb_per_s(memory.bytes(), now_us() - begin));
  }
}

}  // namespace

void measure_managed(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const int repetitions = recorder.repetitions(15);
  recorder.measure(4, "pageable_memory", {}, {{"by_device", ""}, {"by_host_page_tables", ""}, {"means", ""}},
                   [&](Cell& cell) {
                     const bool access = gpu.attribute(Attribute::pageable_memory_access) != 0;
                     const bool tables = gpu.attribute(Attribute::pageable_memory_access_uses_host_page_tables) != 0;
                     cell.fact("by_device", access);
                     cell.fact("by_host_page_tables", tables);
                     cell.fact("means", !access ? "neither HMM nor ATS" : tables ? "ATS" : "HMM");
                   });
  recorder.measure(4, "managed_memory", {}, {{"supported", ""}, {"concurrent", ""}}, [&](Cell& cell) {
    cell.fact("supported", gpu.attribute(Attribute::managed_memory) != 0);
    cell.fact("concurrent", gpu.attribute(Attribute::concurrent_managed_access) != 0);
  });
  const Location device{.type = LocationType::device, .id = gpu.device}, host{.type = LocationType::host, .id = 0};
  recorder.measure(
      4, "fault", {{"block_mib", 2}},
      {{"one_by_one", "us"}, {"at_once", "us"}, {"all_bytes", "us"}, {"resident", "us"}, {"back_by_host", "us"}},
      [&](Cell& cell) { measure_faults(gpu, ManagedMemory(gpu, recorder.quick()), repetitions, cell); });
  for (const auto& [name, to, back] : {std::tuple{"device", device, host}, {"host", host, device}}) {
    for (const std::size_t mib : {std::size_t{2}, std::size_t{256}}) {
      if (recorder.quick() && mib > 2) continue;
      recorder.measure(4, "prefetch", {{"block_mib", mib}, {"to", name}},
                       {{"issue", "us"}, {"whole", "us"}, {"rate", "GB/s"}}, [&, to_ = to, back_ = back](Cell& cell) {
                         const ManagedMemory memory(gpu, recorder.quick(), (mib == 2 ? 64 : 1024) * mebibyte);
                         measure_prefetch(gpu, memory, {to_, back_, mib * mebibyte}, repetitions, cell);
                       });
    }
  }
}

}  // namespace vedette::gpu
