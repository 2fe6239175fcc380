// One device and what the measurements need on it: streams, events, frames in a reserved range, pinned memory, kernels
// that keep it busy. Owners give back what they took; what the driver refuses to take back is let go of, the process
// ends soon.
//
// Thread rule: the context is current in the thread that opened the device; other threads call make_current() first.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "gpu_probe/driver.h"

namespace vedette::gpu {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

double now_us();  // a steady clock

struct Kernels {
  Function compute{}, walk{}, read{}, write{}, check{}, touch{}, store{};
};

// Which of the shared words is what (kernels.h).
struct Word {
  static constexpr std::size_t started = 0, stop = 1, sink = 2, wrong = 3, gate = 4, count = 5;
};

class Gpu {
 public:
  explicit Gpu(const std::string& driver_file);  // the first device, its primary context; throws Refused
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void make_current() const;
  int attribute(Attribute) const;
  std::size_t free_bytes() const;
  std::string name() const;
  std::string pci_bus_id() const;
  // 4-byte words that host and device share, zero at first.
  volatile std::uint32_t* words() const { return words_; }
  Address word_address(std::size_t index) const { return words_device_ + index * sizeof(std::uint32_t); }

  const Driver cuda;
  Kernels kernels;
  DeviceNumber device = 0;
  unsigned multiprocessors = 1;

 private:
  ContextHandle context_{};
  Module module_{};
  volatile std::uint32_t* words_ = nullptr;
  Address words_device_ = 0;
};

class Stream {
 public:
  explicit Stream(const Gpu& gpu) : gpu_(gpu) { gpu.cuda.stream_create(&handle_, stream_non_blocking); }
  ~Stream() { gpu_.cuda.stream_destroy.error(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  StreamHandle get() const { return handle_; }
  void wait() const { gpu_.cuda.stream_synchronize(handle_); }

 private:
  const Gpu& gpu_;
  StreamHandle handle_{};
};

class Event {
 public:
  explicit Event(const Gpu& gpu) : gpu_(gpu) { gpu.cuda.event_create(&handle_, 0); }
  ~Event() { gpu_.cuda.event_destroy.error(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  EventHandle get() const { return handle_; }
  void record(const Stream& stream) const { gpu_.cuda.event_record(handle_, stream.get()); }
  bool done() const;  // throws what the kernels before it were refused for
  void wait() const { gpu_.cuda.event_synchronize(handle_); }
  double us_since(const Event& begin) const;

 private:
  const Gpu& gpu_;
  EventHandle handle_{};
};

// Addresses without memory.
class Range {
 public:
  Range(const Gpu& gpu, std::size_t bytes, std::size_t alignment = 2 * mebibyte);
  ~Range() { gpu_.cuda.free_range.error(address_, bytes_); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  Address at(std::size_t offset) const { return address_ + offset; }
  std::size_t bytes() const { return bytes_; }

 private:
  const Gpu& gpu_;
  std::size_t bytes_;
  Address address_ = 0;
};

// Memory without addresses.
class Frame {
 public:
  Frame(const Gpu& gpu, std::size_t bytes, Location location = {});
  Frame(Frame&& other) noexcept : gpu_(other.gpu_), handle_(std::exchange(other.handle_, 0)), bytes_(other.bytes_) {}
  ~Frame() { release(); }
  Handle get() const { return handle_; }
  std::size_t bytes() const { return bytes_; }
  void release();

 private:
  const Gpu* gpu_;
  Handle handle_ = 0;
  std::size_t bytes_;
};

// A frame at an address, with access for the device.
class Mapped {
 public:
  Mapped(const Gpu& gpu, Address at, const Frame& frame);
  ~Mapped() {
    if (bytes_ != 0) gpu_.cuda.unmap.error(at_, bytes_);
  }
  void unmap() { gpu_.cuda.unmap(at_, std::exchange(bytes_, 0)); }  // throws Refused, as the destructor does not
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

 private:
  const Gpu& gpu_;
  Address at_;
  std::size_t bytes_;
};

AccessDescription access_for_device(const Gpu& gpu);
std::size_t granularity(const Gpu& gpu, Location location);  // the smallest

// Host memory that the device reaches.
class Pinned {
 public:
  Pinned(const Gpu& gpu, std::size_t bytes);
  ~Pinned() { gpu_.cuda.host_free.error(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  Address address() const { return address_; }

 private:
  const Gpu& gpu_;
  void* data_ = nullptr;
  Address address_ = 0;
};

// Plain device memory (cuMemAlloc).
class DeviceMemory {
 public:
  DeviceMemory(const Gpu& gpu, std::size_t bytes) : gpu_(gpu) { gpu.cuda.allocate(&address_, bytes); }
  ~DeviceMemory() { gpu_.cuda.free.error(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  Address address() const { return address_; }

 private:
  const Gpu& gpu_;
  Address address_ = 0;
};

struct Grid {
  unsigned blocks = 1, threads = 1;
};
Grid whole_device(const Gpu& gpu);  // two blocks of 256 threads a multiprocessor

// The arguments are those that the kernel declares (kernels.h), in its types: Address and 64-bit counts, 32-bit values.
template <class... Arguments>
void launch(const Gpu& gpu, Function kernel, Grid grid, const Stream& stream, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  gpu.cuda.launch(kernel, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream.get(), pointers, nullptr);
}

// Keeps the device busy from construction, which waits until the kernel runs, to stop(): computing, or walking through
// memory. It ends by itself after `limit_ms`.
class Busy {
 public:
  Busy(const Gpu& gpu, double limit_ms) : Busy(gpu, limit_ms, 0, 0) {}
  Busy(const Gpu& gpu, double limit_ms, Address from, std::size_t bytes);
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  bool running() const { return !end_.done(); }
  void ask_to_stop();
  void stop();  // and waits for its end

 private:
  void tell(const Stream& stream, bool stop) const;

  const Gpu& gpu_;
  Stream stream_, stops_;
  Event end_;
  DeviceMemory stop_;
};

}  // namespace vedette::gpu
