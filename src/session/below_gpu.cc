// Pinned memory, the disk below it, and how fast both are: see below_gpu.h.
#include "session/below_gpu.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/daily.h"
#include "base/mapping.h"
#include "base/readable.h"
#include "gpu/link.h"
#include "os/probe.h"
#include "os/program.h"
#include "session/stack.h"

namespace vedette::detail {
namespace {

constexpr std::string_view limited_usage = "host:SIZE", usage = "host:SIZE+nvme:DIRECTORY";
constexpr std::uint64_t left_to_program = 8;  // the part of available memory that no default limit gives away
constexpr Bytes piece = 64_KiB;               // of the disk's file: slots are whole pieces
constexpr std::uint32_t depth = 32;           // 2 MiB in flight
constexpr Bytes least_host = 512_KiB;
constexpr Bytes moved_on_disk = 8_MiB;  // to measure it

Error unsupported(std::string message) { return {.cause = Cause::unsupported, .message = std::move(message)}; }

// Writes and then reads as many pieces as `bytes` has.
Result<LinkHabits> measure_disk(DiskThread& disk, Bytes bytes) {
  auto memory = Mapping::reserve(bytes, piece);
  if (!memory) return memory.error();
  const auto count = static_cast<std::uint32_t>(bytes.value / piece.value);
  if (auto reserved = disk.reserve(count); !reserved) return reserved.error();
  DiskThread::Job job{.direction = StoreRequest::Direction::write, .memory = memory->data()};
  for (std::uint32_t i = 0; i < count; ++i) job.pieces.push_back({i});
  const auto time = [&](StoreRequest::Direction direction) -> Result<std::uint64_t> {
    job.direction = direction;
    const Nanoseconds began = host_program().now();
    if (const int error = disk.wait(disk.begin(job)); error != 0)
      return Error{.cause = Cause::system,
                   .message = "measuring the disk below the GPU failed; name a directory of a disk that works",
                   .errno_value = error};
    const auto took = std::max<std::int64_t>((host_program().now() - began).value, 1);
    return static_cast<std::uint64_t>(static_cast<double>(bytes.value) * 1e9 / static_cast<double>(took));
  };
  const auto write = time(StoreRequest::Direction::write);
  if (!write) return write.error();
  const auto read = time(StoreRequest::Direction::read);
  if (!read) return read.error();
  return LinkHabits{.speed = {.read = *read, .write = *write, .mixed = std::max(*read, *write)}};
}

// 0: not known.
Bytes default_limit() {
  const Bytes available = available_memory();
  return {(available.value - available.value / left_to_program) / piece.value * piece.value};
}

Result<Bytes> limit_of(std::string_view size) {
  const std::optional<Bytes> host = read_size(size);
  if (host && *host >= least_host) return Bytes{host->value / piece.value * piece.value};
  return unsupported("host memory of '" + std::string(size) +
                     "' below a GPU is too little, or no size; give a size such as 64GiB, of at least " +
                     readable_exactly(least_host));
}

}  // namespace

Result<BelowGpu> open_below_gpu(const SessionOptions& options, Bytes budget,
                                const std::shared_ptr<const cuda::Device>& device) {
  const auto writes = read_max_writes(options.max_writes);
  if (!options.max_writes.empty() && (!writes || writes->a_day))
    return unsupported("max_writes works with a budget of the CPU's memory alone; leave it out below a GPU");
  BelowGpu below;
  const auto with_disk = arguments_of(usage, options.slow), limited = arguments_of(limited_usage, options.slow);
  if (!with_disk && !limited && options.slow != "host" && options.slow != SessionOptions{}.slow)
    return unsupported("slow tier '" + options.slow + "' below a GPU is unknown; use host, " +
                       std::string(limited_usage) + " or " + std::string(usage));
  below.tiers.push_back({.name = "host", .capacity = no_limit});
  below.host = default_limit();
  if (with_disk || limited) {
    const auto host = limit_of((with_disk ? *with_disk : *limited)[0]);
    if (!host) return host.error();
    below.host = *host;
  }
  if (with_disk) {
    auto store = open_nvme_store({.directory = std::string((*with_disk)[1]), .slot_bytes = piece, .depth = depth});
    if (!store) return store.error();
    below.tiers[0].capacity = {below.host.value - below.host.value / 8};  // HostSlots keeps the rest free ahead of need
    below.tiers.push_back({.name = "nvme", .capacity = no_limit});
    below.disk = std::make_unique<DiskThread>(std::move(*store));
  }
  const std::uint64_t most = below.host.value == 0 ? budget.value : std::min(budget.value, below.host.value);
  const auto link = measure_link(device, {most / 8192 * 8192});
  if (!link) return link.error();
  below.habits.push_back(*link);
  if (below.disk == nullptr) return below;
  const auto of_disk = measure_disk(*below.disk, moved_on_disk);
  if (!of_disk) return of_disk.error();
  below.habits.push_back(*of_disk);
  return below;
}

}  // namespace vedette::detail
