// Point 4: do CUPTI's records of the device's page faults carry the page's address and whether it was read or written?
// If so, the device has a page-level profile of its accesses, as the processor has.
//
// The device reads every block of a managed range, then, after the host took them back, writes them. Records count when
// their address lies in the range.
#include "cuda/fault_records.h"

#include <set>

#include "gpu_probe/groups.h"
#include "gpu_probe/managed_memory.h"
#include "gpu_probe/transfer.h"

namespace vedette::gpu {
namespace {

struct Seen {
  std::size_t faults = 0, inside = 0, reads = 0, writes = 0, moves = 0;
  std::set<std::uint64_t> blocks;
};

Seen count(const std::vector<CounterRecord>& records, const ManagedMemory& memory) {
  Seen seen;
  for (const CounterRecord& record : records) {
    if (record.kind == CounterKind::bytes_to_device || record.kind == CounterKind::bytes_to_host) ++seen.moves;
    if (!record.is_fault_of_device()) continue;
    ++seen.faults;
    if (record.address < memory.address() || record.address >= memory.address() + memory.bytes()) continue;
    ++seen.inside;
    seen.blocks.insert((record.address - memory.address()) / block_bytes);
    seen.reads += record.access() == FaultAccess::read ? 1 : 0;
    seen.writes += record.access() == FaultAccess::write ? 1 : 0;
  }
  return seen;
}

Json json_of(const Seen& seen, const ManagedMemory& memory) {
  return {{"faults", seen.faults},        {"in_range", seen.inside}, {"blocks_seen", seen.blocks.size()},
          {"of_blocks", memory.blocks()}, {"said_read", seen.reads}, {"said_write", seen.writes},
          {"moves", seen.moves}};
}

void touch_by_host(const ManagedMemory& memory) {
  auto* const words = reinterpret_cast<volatile std::uint32_t*>(memory.address());
  for (std::size_t at = 0; at < memory.bytes(); at += 4096) words[at / sizeof(std::uint32_t)] = 3;
}

std::vector<CounterRecord> taken(FaultRecords& faults) {
  auto records = faults.take();
  if (!records) throw Refused(records.error().message);
  return *std::move(records);
}

void measure_records(const Gpu& gpu, FaultRecords& faults, bool quick, Cell& cell) {
  const ManagedMemory memory(gpu, quick);
  Lane lane(gpu);
  const std::uint64_t stride = block_bytes, blocks = memory.blocks();
  touch_by_host(memory);
  taken(faults);
  const double plain = lane.time_us([&] {
    launch(gpu, gpu.kernels.touch, {}, lane.stream, memory.address(), stride, blocks, gpu.word_address(Word::sink));
  });
  const Seen read = count(taken(faults), memory);
  touch_by_host(memory);
  taken(faults);
  lane.time_us([&] { launch(gpu, gpu.kernels.store, {}, lane.stream, memory.address(), stride, blocks); });
  const Seen written = count(taken(faults), memory);
  cell.fact("after_reads", json_of(read, memory));
  cell.fact("after_writes", json_of(written, memory));
  cell.fact("carries_address", read.inside > 0 && written.inside > 0);
  cell.fact("carries_access", read.reads > 0 && read.writes == 0 && written.writes > 0);
  cell.sample("fault_recorded", plain / static_cast<double>(blocks));
}

}  // namespace

void measure_fault_records(const ProbeOptions& options, Recorder& recorder) {
  // In this order: the driver is there, CUPTI listens, the context comes to be.
  { const Driver there(options.driver); }
  recorder.measure(4, "fault_records", {},
                   {{"carries_address", ""},
                    {"carries_access", ""},
                    {"after_reads", ""},
                    {"after_writes", ""},
                    {"fault_recorded", "us"}},
                   [&](Cell& cell) {
                     constexpr CounterKind kinds[] = {CounterKind::bytes_to_device, CounterKind::bytes_to_host,
                                                      CounterKind::host_page_fault, CounterKind::device_page_fault};
                     const auto faults = FaultRecords::open(kinds, options.activity);
                     if (!faults) throw Refused(faults.error().message);
                     const Gpu gpu(options.driver);
                     measure_records(gpu, **faults, recorder.quick(), cell);
                   });
}

}  // namespace vedette::gpu
