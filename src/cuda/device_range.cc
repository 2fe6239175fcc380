// Reserving, creating and mapping: see device_range.h.
#include "cuda/device_range.h"

#include <algorithm>
#include <utility>

#include "base/arithmetic.h"
#include "base/readable.h"

namespace vedette::cuda {
namespace {}  // namespace

Result<DeviceRange> DeviceRange::make(std::shared_ptr<const Device> device, const Options& options) {
  DeviceRange range(std::move(device));
  const Device& gpu = *range.device_;
  const Calls& calls = gpu.calls();
  range.properties_.location = {.type = LocationType::device, .id = gpu.number()};
  if (const int number = calls.granularity(&range.granule_, &range.properties_, granularity_recommended);
      number != success)
    return gpu.driver().error(number, "asking a GPU for the granularity of its memory");
  range.largest_ = round_up(std::max<std::size_t>(options.handle.value, 1), range.granule_);
  const std::size_t most = round_up(std::max(options.bytes.value, options.most.value), range.granule_);
  if (most == 0) return Error{.cause = Cause::malformed_input, .message = "a range of no bytes; name a budget above 0"};
  if (options.managed) {
    if (auto taken = range.take_managed(round_up(options.bytes.value, range.granule_)); !taken) return taken.error();
    return range;
  }
  const int number = calls.reserve(&range.address_, most, range.granule_, 0, 0);
  if (number != success) return gpu.driver().error(number, "reserving " + readable({most}) + " of GPU addresses");
  range.reserved_ = most;
  if (auto mapped = range.resize(options.bytes); !mapped) return mapped.error();
  return range;
}

Result<void> DeviceRange::take_managed(std::size_t bytes) {
  const int number = device_->calls().allocate_managed(&address_, bytes, managed_attached_global);
  if (number != success)
    return device_->driver().error(number, "taking " + readable({bytes}) + " of managed GPU memory");
  managed_ = true;
  reserved_ = mapped_ = bytes;
  return {};
}

DeviceRange::DeviceRange(DeviceRange&& other) noexcept
    : device_(std::move(other.device_)),
      properties_(other.properties_),
      granule_(other.granule_),
      reserved_(std::exchange(other.reserved_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      largest_(other.largest_),
      managed_(other.managed_),
      address_(other.address_),
      pieces_(std::exchange(other.pieces_, {})) {}

DeviceRange::~DeviceRange() {
  if (reserved_ == 0) return;
  const Current current(*device_);
  if (managed_) {
    device_->calls().free(address_);
    return;
  }
  while (!pieces_.empty()) unmap_last();
  device_->calls().free_range(address_, reserved_);
}

Result<void> DeviceRange::resize(Bytes bytes) {
  const std::size_t wanted = round_up(bytes.value, granule_);
  if (wanted > reserved_)
    return Error{.cause = Cause::malformed_input,
                 .message = "a range of " + readable({reserved_}) + " cannot grow to " + readable(bytes) +
                            "; reserve more addresses (DeviceRange::Options::most)"};
  while (!pieces_.empty() && mapped_ - pieces_.back().bytes >= wanted) unmap_last();
  while (mapped_ < wanted) {
    if (auto mapped = map(std::min(wanted - mapped_, largest_)); !mapped) return mapped;
  }
  return {};
}

Result<void> DeviceRange::map(std::size_t bytes) {
  const Calls& calls = device_->calls();
  const auto failed = [&](int number) {
    return device_->driver().error(number, "mapping " + readable({bytes}) + " of GPU memory");
  };
  Piece piece{.bytes = bytes};
  if (const int number = calls.create(&piece.handle, bytes, &properties_, 0); number != success) return failed(number);
  if (const int number = calls.map(address_ + mapped_, bytes, 0, piece.handle, 0); number != success) {
    calls.release(piece.handle);
    return failed(number);
  }
  const AccessDescription access{.location = properties_.location};
  if (const int number = calls.set_access(address_ + mapped_, bytes, &access, 1); number != success) {
    calls.unmap(address_ + mapped_, bytes);
    calls.release(piece.handle);
    return failed(number);
  }
  pieces_.push_back(piece);
  mapped_ += bytes;
  return {};
}

void DeviceRange::unmap_last() noexcept {
  const Piece piece = pieces_.back();
  pieces_.pop_back();
  mapped_ -= piece.bytes;
  device_->calls().unmap(address_ + mapped_, piece.bytes);
  device_->calls().release(piece.handle);
}

}  // namespace vedette::cuda
