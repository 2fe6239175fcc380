// Point 1: what do create, map, set access, unmap and release of a chunk cost, and does any of them wait for the
// device?
//
// Microseconds a chunk. Batched: set access and unmap are one call for all chunks, the others have no such call.
// "Busy": meanwhile a kernel walks through other chunks of the same range. A call has waited when that kernel had ended
// as it came back; the kernel runs for busy_ms and is started anew for the next call if need be.
#include <algorithm>
#include <map>
#include <optional>

#include "gpu_probe/device.h"
#include "gpu_probe/groups.h"

namespace vedette::gpu {
namespace {

constexpr std::size_t walked_bytes = 4 * mebibyte;

struct Shape {
  std::size_t bytes = 0;
  std::size_t count = 1;
  bool busy = false;
};

class Chunks {
 public:
  Chunks(const Gpu& gpu, const Shape& shape, double busy_ms, Cell& cell)
      : gpu_(gpu),
        shape_(shape),
        busy_ms_(busy_ms),
        cell_(cell),
        range_(gpu, walked_bytes + shape.bytes * shape.count),
        walked_frame_(gpu, walked_bytes),
        walked_(gpu, range_.at(0), walked_frame_) {}

  ~Chunks() {  // what a refused call left behind
    busy_.reset();
    for (std::size_t i = 0; i < mapped_; ++i) gpu_.cuda.unmap.error(at(i), shape_.bytes);
    for (const Handle handle : handles_) gpu_.cuda.release.error(handle);
  }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  void round() {
    AllocationProperties properties;
    properties.location = {.type = LocationType::device, .id = gpu_.device};
    const AccessDescription access = access_for_device(gpu_);
    const std::size_t all = shape_.bytes * shape_.count;
    time("create", [&] {
      for (std::size_t i = 0; i < shape_.count; ++i) {
        Handle handle = 0;
        gpu_.cuda.create(&handle, shape_.bytes, &properties, 0);
        handles_.push_back(handle);
      }
    });
    time("map", [&] {
      for (; mapped_ < shape_.count; ++mapped_) gpu_.cuda.map(at(mapped_), shape_.bytes, 0, handles_[mapped_], 0);
    });
    time("set_access", [&] { gpu_.cuda.set_access(at(0), all, &access, 1); });
    time("unmap", [&] { gpu_.cuda.unmap(at(0), all); });
    mapped_ = 0;
    time("release", [&] {
      for (; !handles_.empty(); handles_.pop_back()) gpu_.cuda.release(handles_.back());
    });
    ++rounds_;
  }

  void tell_waits() {
    if (!shape_.busy) return;
    Json waited = waited_;
    waited["of"] = rounds_;
    cell_.fact("waited", waited);
  }

 private:
  Address at(std::size_t chunk) const { return range_.at(walked_bytes + chunk * shape_.bytes); }

  template <class Calls>
  void time(const char* quantity, const Calls& calls) {
    if (shape_.busy && (!busy_ || !busy_->running())) {
      busy_.reset();
      busy_.emplace(gpu_, busy_ms_, range_.at(0), walked_bytes);
    }
    const double begin = now_us();
    calls();
    cell_.sample(quantity, (now_us() - begin) / static_cast<double>(shape_.count));
    if (shape_.busy) waited_[quantity] += busy_->running() ? 0 : 1;
  }

  const Gpu& gpu_;
  const Shape shape_;
  const double busy_ms_;
  Cell& cell_;
  Range range_;
  Frame walked_frame_;
  Mapped walked_;
  std::optional<Busy> busy_;
  std::vector<Handle> handles_;
  std::size_t mapped_ = 0;
  int rounds_ = 0;
  std::map<std::string, int> waited_;
};

}  // namespace

void measure_chunks(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const std::vector<std::size_t> sizes =
      recorder.quick() ? std::vector<std::size_t>{2, 4} : std::vector<std::size_t>{2, 4, 16, 32, 64, 256};
  for (const bool busy : {false, true}) {
    for (const std::size_t size : sizes) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{recorder.quick() ? 4u : 16u}}) {
        std::vector<Quantity> quantities = {
            {"create", "us"}, {"map", "us"}, {"set_access", "us"}, {"unmap", "us"}, {"release", "us"}};
        if (busy) quantities.push_back({"waited", ""});
        recorder.measure(1, "chunk", {{"chunk_mib", size}, {"calls_for", count}, {"device", busy ? "busy" : "idle"}},
                         quantities, [&](Cell& cell) {
                           const Shape shape{.bytes = size * mebibyte, .count = count, .busy = busy};
                           if (2 * shape.bytes * count > gpu.free_bytes())
                             throw Refused("too little device memory is free");
                           Chunks chunks(gpu, shape, options.busy_ms, cell);
                           for (int i = recorder.repetitions(busy ? 15 : 51); i > 0; --i) chunks.round();
                           chunks.tell_waits();
                         });
      }
    }
  }
}

}  // namespace vedette::gpu
