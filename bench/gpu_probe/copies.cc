// Point 3: how fast are copies between pinned host memory and the device: in, out, both at once; alone and beside a
// kernel that computes on all multiprocessors?
//
// single: one copy, waited for. queued: as many as make 64 MiB (64 at most), one call each. batch: the same in one call
// of cuMemcpyBatchAsync. GB/s of both directions together; issue: microseconds of the host for a copy.
//
// By NUMA node: single copies with memory bound to each node of the processor in turn, registered.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include "gpu_probe/groups.h"
#include "gpu_probe/transfer.h"
#include "os/devices.h"

namespace vedette::gpu {
namespace {

constexpr std::size_t most_bytes = 256 * mebibyte;
constexpr std::size_t queued_bytes = 64 * mebibyte;
constexpr std::size_t most_copies = 64;
constexpr double busy_ms = 2000;

struct Shape {
  std::size_t bytes = 0;
  bool in = false, out = false;
  std::string how;
  std::size_t copies() const {
    return how == "single" ? 1 : std::clamp<std::size_t>(queued_bytes / bytes, 1, most_copies);
  }
};

// Pages of one NUMA node, registered.
class NodeMemory {
 public:
  NodeMemory(const Gpu& gpu, unsigned node, std::size_t bytes) : gpu_(gpu), bytes_(bytes) {
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw Refused("mmap");
    constexpr unsigned long bind = 2;  // MPOL_BIND of linux/mempolicy.h
    const std::array<unsigned long, 16> nodes = mask_of(node);
    if (::syscall(SYS_mbind, data_, bytes, bind, nodes.data(), nodes.size() * 64, 0UL) != 0) refuse("mbind");
    ::madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes);
    if (const int error = gpu.cuda.host_register.error(data_, bytes, host_register_portable | host_register_mapped);
        error != success) {
      ::munmap(data_, bytes_);
      gpu.cuda.library.refuse(error, "cuMemHostRegister");
    }
    gpu.cuda.device_pointer(&address_, data_, 0);
  }
  ~NodeMemory() {
    gpu_.cuda.host_unregister.error(data_);
    ::munmap(data_, bytes_);
  }
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;
  Address address() const { return address_; }

 private:
  static std::array<unsigned long, 16> mask_of(unsigned node) {
    std::array<unsigned long, 16> nodes{};
    nodes[node / 64 % nodes.size()] = 1UL << node % 64;
    return nodes;
  }
  [[noreturn]] void refuse(const char* what) {
    const int error = errno;
    ::munmap(data_, bytes_);
    throw Refused(std::string(what) + ": " + std::strerror(error));
  }

  const Gpu& gpu_;
  std::size_t bytes_;
  void* data_ = nullptr;
  Address address_ = 0;
};

class Buffers {
 public:
  Buffers(const Gpu& gpu, Address host_in, Address host_out)
      : gpu_(gpu),
        host_in_(host_in),
        host_out_(host_out),
        device_in_(gpu, most_bytes),
        device_out_(gpu, most_bytes),
        in_(gpu),
        out_(gpu) {}

  // Microseconds on the device from the first copy's begin to the last one's end; the host's for issuing one go to the
  // cell.
  double once(const Shape& shape, Cell& cell) {
    Lane& first = shape.in ? in_ : out_;
    double issue = now_us();
    first.begin.record(first.stream);
    if (shape.in && shape.out) gpu_.cuda.stream_wait_event(out_.stream.get(), first.begin.get(), 0);
    if (shape.in) issue_copies(shape, device_in_.address(), host_in_, in_);
    if (shape.out) issue_copies(shape, host_out_, device_out_.address(), out_);
    issue = now_us() - issue;
    double us = 0.1;
    for (Lane* lane : {shape.in ? &in_ : nullptr, shape.out ? &out_ : nullptr}) {
      if (lane == nullptr) continue;
      lane->end.wait();
      us = std::max(us, lane->end.us_since(first.begin));
    }
    const int directions = (shape.in ? 1 : 0) + (shape.out ? 1 : 0);
    const auto copies = static_cast<double>(shape.copies()) * directions;
    cell.sample("issue", issue / copies);
    cell.sample("rate", copies * static_cast<double>(shape.bytes) / us * 1e-3);
    cell.sample("time", us);
    return us;
  }

 private:
  void issue_copies(const Shape& shape, Address to, Address from, Lane& lane) {
    const std::size_t copies = shape.copies();
    if (shape.how == "batch") {
      std::array<Address, most_copies> tos{}, froms{};
      std::array<std::size_t, most_copies> sizes{};
      for (std::size_t i = 0; i < copies; ++i)
        tos[i] = to + i * shape.bytes, froms[i] = from + i * shape.bytes, sizes[i] = shape.bytes;
      CopyAttributes attributes;
      std::size_t first = 0;
      gpu_.cuda.copy_batch(tos.data(), froms.data(), sizes.data(), copies, &attributes, &first, 1, lane.stream.get());
    } else {
      for (std::size_t i = 0; i < copies; ++i)
        gpu_.cuda.copy(to + i * shape.bytes, from + i * shape.bytes, shape.bytes, lane.stream.get());
    }
    lane.end.record(lane.stream);
  }

  const Gpu& gpu_;
  Address host_in_, host_out_;
  DeviceMemory device_in_, device_out_;
  Lane in_, out_;
};

void measure_shape(const Gpu& gpu, Buffers& buffers, const Shape& shape, bool busy, int repetitions, Cell& cell) {
  std::optional<Busy> kernel;
  if (busy) kernel.emplace(gpu, busy_ms);
  Cell warm_up;
  buffers.once(shape, warm_up);
  for (int i = 0; i < repetitions; ++i) {
    buffers.once(shape, cell);
    if (!busy || kernel->running()) continue;
    kernel.reset();  // it ran for its whole time: long cells need several, and copies that wait for it show in the time
    kernel.emplace(gpu, busy_ms);
  }
}

}  // namespace

void measure_copies(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const std::vector<std::size_t> sizes_kib =
      recorder.quick() ? std::vector<std::size_t>{64, 256}
                       : std::vector<std::size_t>{64, 256, 1024, 2048, 4096, 16384, 32768, 65536, 262144};
  const Pinned host_in(gpu, most_bytes), host_out(gpu, most_bytes);
  Buffers buffers(gpu, host_in.address(), host_out.address());
  for (const bool busy : {false, true}) {
    for (const auto& [direction, in, out] :
         {std::tuple{"in", true, false}, {"out", false, true}, {"both", true, true}}) {
      for (const char* how : {"single", "queued", "batch"}) {
        for (const std::size_t kib : sizes_kib) {
          const Shape shape{.bytes = kib << 10, .in = in, .out = out, .how = how};
          if (shape.how != "single" && shape.copies() == 1) continue;
          recorder.measure(3, "copy",
                           {{"kib", kib},
                            {"direction", direction},
                            {"how", how},
                            {"copies", shape.copies()},
                            {"device", busy ? "busy" : "idle"}},
                           {{"rate", "GB/s"}, {"issue", "us"}, {"time", "us"}},
                           [&, shape_ = shape, busy_ = busy](Cell& cell) {
                             measure_shape(gpu, buffers, shape_, busy_, recorder.repetitions(21), cell);
                           });
        }
      }
    }
  }
}

void measure_copies_by_node(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const int nearest = gpu.attribute(Attribute::host_numa_id);
  const std::vector<std::size_t> sizes_mib =
      recorder.quick() ? std::vector<std::size_t>{2} : std::vector<std::size_t>{2, 32, 256};
  for (const NumaNode& each : find_numa_nodes()) {
    const auto node = static_cast<unsigned>(each.number);
    for (const auto& [direction, in, out] :
         {std::tuple{"in", true, false}, {"out", false, true}, {"both", true, true}}) {
      for (const std::size_t mib : sizes_mib) {
        const Shape shape{.bytes = mib * mebibyte, .in = in, .out = out, .how = "single"};
        recorder.measure(
            3, "copy_by_node",
            {{"node", node}, {"nearest", static_cast<int>(node) == nearest}, {"mib", mib}, {"direction", direction}},
            {{"rate", "GB/s"}, {"time", "us"}}, [&](Cell& cell) {
              const NodeMemory host_in(gpu, node, most_bytes), host_out(gpu, node, most_bytes);
              Buffers buffers(gpu, host_in.address(), host_out.address());
              measure_shape(gpu, buffers, shape, false, recorder.repetitions(21), cell);
            });
      }
    }
  }
}

}  // namespace vedette::gpu
