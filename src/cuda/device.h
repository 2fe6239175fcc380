// One GPU: its primary context, which libtorch uses too, its streams and its events.
//
// Thread rule: make_current() once in each thread that calls anything here or in device_range.h and pinned_pool.h; a
// thread that has launched an operator of libtorch needs no call. After that, any thread. Destructors make the context
// current themselves. Handles of foreign streams (libtorch's) are welcome as StreamHandle.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cuda/driver.h"
#include "vedette/units.h"

namespace vedette::cuda {

class Device : public std::enable_shared_from_this<Device> {
 public:
  struct Memory {
    Bytes free, total;
  };

  // Retains the primary context and makes it current in this thread. `ordinal` counts from 0.
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Driver>, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Result<void> make_current() const;
  const Driver& driver() const noexcept { return *driver_; }
  const Calls& calls() const noexcept { return driver_->calls(); }
  DeviceNumber number() const noexcept { return number_; }
  ContextHandle context() const noexcept { return context_; }
  bool is_one_of_several() const noexcept { return several_; }
  std::string name() const;    // "NVIDIA H200"; empty where the driver refuses
  std::string bus_id() const;  // "0000:19:00.0", as NVML names it; empty where the driver refuses
  std::optional<int> attribute(Attribute) const;
  std::optional<int> numa_node() const;  // nearest to this GPU, where the machine says so
  Result<Memory> memory() const;
  Result<void> synchronize() const;  // the calling thread waits for all that is queued in the context

  // Queues a copy; host memory must be pinned for it to be asynchronous. Neither address is looked at before.
  Result<void> copy(StreamHandle, Address to, Address from, Bytes) const;
  // Queues copies that do not overlap, in one call of the driver: it has batched_copies(). Refused: some may be queued.
  Result<void> copy_together(StreamHandle, std::span<const Copy>) const;
  Result<void> fill(StreamHandle, Address to, unsigned char value, Bytes) const;

 private:
  Device(std::shared_ptr<const Driver> driver, DeviceNumber number, ContextHandle context, bool several) noexcept
      : driver_(std::move(driver)), number_(number), context_(context), several_(several) {}
  const std::shared_ptr<const Driver> driver_;
  const DeviceNumber number_;
  const ContextHandle context_;
  const bool several_;
};

// Makes a device's context current, and the thread's former one again at the end. Where the driver does not say which
// that is the device's stays current.
class [[nodiscard]] Current {
 public:
  explicit Current(const Device&) noexcept;
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Device& device_;
  ContextHandle former_ = nullptr;
  bool changes_ = false;
};

// As Current, in a thread that computes, where there are several GPUs: it may compute on another one, whose default
// stream has the same handle.
class [[nodiscard]] CurrentAmongSeveral {
 public:
  explicit CurrentAmongSeveral(const Device& device) noexcept {
    if (device.is_one_of_several()) current_.emplace(device);
  }

 private:
  std::optional<Current> current_;
};

// While it lives, this thread may wait for its own streams and events and pin memory, though the program captures
// another stream into a graph: else the driver refuses, and the program's capture is lost. No captured work is among
// what we wait for.
class [[nodiscard]] BesideCaptures {
 public:
  explicit BesideCaptures(const Device& device) noexcept : device_(device), exchanged_(exchange()) {}
  ~BesideCaptures() {
    if (exchanged_ && !exchange()) static_cast<void>(exchange());  // a call may be refused once
  }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  bool exchange() noexcept { return device_.calls().exchange_capture_mode(&mode_) == success; }
  const Device& device_;
  CaptureMode mode_ = CaptureMode::relaxed;
  const bool exchanged_;
};

// A stream that does not wait for the default one.
class Stream {
 public:
  static Result<Stream> create(std::shared_ptr<const Device>);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();  // commands that are queued still run
  StreamHandle handle() const noexcept { return handle_; }
  Result<void> synchronize() const;  // the calling thread waits

 private:
  Stream(std::shared_ptr<const Device> device, StreamHandle handle) noexcept
      : device_(std::move(device)), handle_(handle) {}
  std::shared_ptr<const Device> device_;
  StreamHandle handle_ = nullptr;
};

// A point in a stream. Recorded again, it is another point; waits for the former one are not concerned.
class Event {
 public:
  enum class Timing { off, on };
  static Result<Event> create(std::shared_ptr<const Device>, Timing = Timing::off);
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  ~Event();
  EventHandle handle() const noexcept { return handle_; }
  Result<void> record(StreamHandle) const;
  Result<void> let_wait(StreamHandle) const;            // the stream waits for the point; no thread does
  Result<bool> passed() const;                          // true before the first record, too
  Result<void> synchronize() const;                     // the calling thread waits
  Result<Nanoseconds> since(const Event& begin) const;  // both passed, both with Timing::on

 private:
  Event(std::shared_ptr<const Device> device, EventHandle handle) noexcept
      : device_(std::move(device)), handle_(handle) {}
  std::shared_ptr<const Device> device_;
  EventHandle handle_ = nullptr;
};

}  // namespace vedette::cuda
