// Point 3: how fast are copies between pinned host memory and the device: in, out, both at once; alone and beside a
// kernel that computes on all multiprocessors?
//
// single: one copy, waited for. queued: as many as make 64 MiB (64 at most), one call each. batch: the same in one call
// of cuMemcpyBatchAsync. GB/s of both directions together; issue: microseconds of the host for a copy.
#include <array>
#include <optional>
#include <string>

#include "gpu_probe/groups.h"
#include "gpu_probe/transfer.h"

namespace vedette::gpu {
namespace {

constexpr std::size_t most_bytes = 64 * mebibyte;
constexpr std::size_t most_copies = 64;
constexpr double busy_ms = 2000;

struct Shape {
  std::size_t bytes = 0;
  bool in = false, out = false;
  std::string how;
  std::size_t copies() const {
    return how == "single" ? 1 : std::clamp<std::size_t>(most_bytes / bytes, 1, most_copies);
  }
};

class Buffers {
 public:
  Buffers(const Gpu& gpu, std::size_t bytes)
      : gpu_(gpu),
        host_in_(gpu, bytes),
        host_out_(gpu, bytes),
        device_in_(gpu, bytes),
        device_out_(gpu, bytes),
        in_(gpu),
        out_(gpu) {}

  // Microseconds on the device from the first copy's begin to the last one's end; the host's for issuing one go to the
  // cell.
  double once(const Shape& shape, Cell& cell) {
    Lane& first = shape.in ? in_ : out_;
    double issue = now_us();
    first.begin.record(first.stream);
    if (shape.in && shape.out) gpu_.cuda.stream_wait_event(out_.stream.get(), first.begin.get(), 0);
    if (shape.in) issue_copies(shape, device_in_.address(), host_in_.address(), in_);
    if (shape.out) issue_copies(shape, host_out_.address(), device_out_.address(), out_);
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
  Pinned host_in_, host_out_;
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
  const std::vector<std::size_t> sizes_kib = recorder.quick()
                                                 ? std::vector<std::size_t>{64, 256}
                                                 : std::vector<std::size_t>{64, 256, 1024, 2048, 4096, 16384, 65536};
  Buffers buffers(gpu, most_bytes);
  for (const bool busy : {false, true}) {
    for (const auto& [direction, in, out] :
         {std::tuple{"in", true, false}, {"out", false, true}, {"both", true, true}}) {
      for (const char* how : {"single", "queued", "batch"}) {
        for (const std::size_t kib : sizes_kib) {
          const Shape shape{.bytes = kib << 10, .in = in, .out = out, .how = how};
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

}  // namespace vedette::gpu
