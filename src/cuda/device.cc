// Contexts, streams and events: see device.h.
#include "cuda/device.h"

#include <utility>

#include "base/readable.h"

namespace vedette::cuda {

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, int ordinal) {
  const Calls& calls = driver->calls();
  const std::string doing = "opening GPU " + std::to_string(ordinal);
  int count = 0;
  if (auto known = driver->check(calls.device_count(&count), "counting GPUs"); !known) return known.error();
  if (ordinal < 0 || ordinal >= count)
    return Error{.cause = Cause::unavailable,
                 .message = "there is no GPU " + std::to_string(ordinal) + " among " + std::to_string(count) +
                            "; choose one that nvidia-smi lists, and see CUDA_VISIBLE_DEVICES"};
  DeviceNumber number = 0;
  if (auto found = driver->check(calls.device(&number, ordinal), doing); !found) return found.error();
  ContextHandle context = nullptr;
  if (auto retained = driver->check(calls.retain_context(&context, number), doing); !retained) return retained.error();
  std::shared_ptr<Device> device(new Device(std::move(driver), number, context, count > 1));
  if (auto current = device->make_current(); !current) return current.error();
  return device;
}

Device::~Device() { calls().release_context(number_); }

Result<void> Device::make_current() const {
  return driver_->check(calls().set_context(context_), "making a GPU's context current");
}

std::string Device::name() const {
  char text[256] = {};
  return calls().device_name(text, sizeof text - 1, number_) == success ? text : "";
}

std::string Device::bus_id() const {
  char text[32] = {};
  return calls().bus_id(text, sizeof text - 1, number_) == success ? text : "";
}

std::optional<int> Device::attribute(Attribute which) const {
  int value = 0;
  if (calls().attribute(&value, which, number_) != success) return std::nullopt;
  return value;
}

std::optional<int> Device::numa_node() const {
  const std::optional<int> node = attribute(Attribute::host_numa_id);
  return node && *node >= 0 ? node : std::nullopt;
}

Result<Device::Memory> Device::memory() const {
  std::size_t free = 0, total = 0;
  if (auto known = driver_->check(calls().memory_info(&free, &total), "asking a GPU for its memory"); !known)
    return known.error();
  return Memory{.free = {free}, .total = {total}};
}

Result<void> Device::synchronize() const {
  const BesideCaptures here(*this);
  return driver_->check(calls().synchronize(), "waiting for a GPU");
}

Result<void> Device::copy(StreamHandle stream, Address to, Address from, Bytes bytes) const {
  const int number = calls().copy(to, from, bytes.value, stream);
  if (number == success) return {};
  return driver_->error(number, "copying " + readable(bytes) + " between a GPU and its host");
}

Result<void> Device::copy_together(StreamHandle stream, std::span<const Copy> copies) const {
  return driver_->check(driver_->batched_copies()(stream, copies), "copying between a GPU and its host");
}

Result<void> Device::fill(StreamHandle stream, Address to, unsigned char value, Bytes bytes) const {
  return driver_->check(calls().fill(to, value, bytes.value, stream), "filling GPU memory");
}

Current::Current(const Device& device) noexcept : device_(device) {
  changes_ = device.calls().current_context(&former_) == success;
  if (changes_ && former_ == device.context()) {
    changes_ = false;
    return;
  }
  // A call may be refused once. Refused twice, the call that needs the context is, too.
  if (!device.make_current()) static_cast<void>(device.make_current());
}

Current::~Current() {
  if (changes_) device_.calls().set_context(former_);
}

Result<Stream> Stream::create(std::shared_ptr<const Device> device) {
  StreamHandle handle = nullptr;
  const int number = device->calls().stream_create(&handle, stream_non_blocking);
  if (number != success) return device->driver().error(number, "creating a stream");
  return Stream(std::move(device), handle);
}

Stream::Stream(Stream&& other) noexcept
    : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  const Current current(*device_);
  device_->calls().stream_destroy(handle_);
}

Result<void> Stream::synchronize() const {
  const BesideCaptures here(*device_);
  return device_->driver().check(device_->calls().stream_synchronize(handle_), "waiting for a stream");
}

Result<Event> Event::create(std::shared_ptr<const Device> device, Timing timing) {
  EventHandle handle = nullptr;
  const int number = device->calls().event_create(&handle, timing == Timing::on ? 0 : event_disable_timing);
  if (number != success) return device->driver().error(number, "creating an event");
  return Event(std::move(device), handle);
}

Event::Event(Event&& other) noexcept
    : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, nullptr)) {}

Event::~Event() {
  if (handle_ == nullptr) return;
  const Current current(*device_);
  device_->calls().event_destroy(handle_);
}

Result<void> Event::record(StreamHandle stream) const {
  return device_->driver().check(device_->calls().event_record(handle_, stream), "recording an event");
}

Result<void> Event::let_wait(StreamHandle stream) const {
  return device_->driver().check(device_->calls().stream_wait_event(stream, handle_, 0),
                                 "letting a stream wait for an event");
}

Result<bool> Event::passed() const {
  const BesideCaptures here(*device_);
  const int number = device_->calls().event_query(handle_);
  if (number == success || number == error_not_ready) return number == success;
  return device_->driver().error(number, "asking for an event");
}

Result<void> Event::synchronize() const {
  const BesideCaptures here(*device_);
  return device_->driver().check(device_->calls().event_synchronize(handle_), "waiting for an event");
}

Result<Nanoseconds> Event::since(const Event& begin) const {
  float ms = 0;
  const int number = device_->calls().event_elapsed_ms(&ms, begin.handle_, handle_);
  if (number != success) return device_->driver().error(number, "reading the time between two events");
  return Nanoseconds{static_cast<std::int64_t>(static_cast<double>(ms) * 1e6)};
}

}  // namespace vedette::cuda
