// Handles of two kinds in one range: see mixed_range.h.
#include "cuda/mixed_range.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/assert.h"
#include "base/readable.h"

namespace vedette::cuda {
namespace {

std::size_t whole_units(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

[[noreturn]] void die_without_memory() {
  die("rows of a table cannot be given memory again; start the program again, and see the kernel's log (dmesg) for the "
      "GPU's own report");
}

}  // namespace

AllocationProperties MixedRange::properties(const Device& device, Kind kind) {
  AllocationProperties all;
  all.location = {.type = LocationType::device, .id = device.number()};
  // CUDA 12.2; node 0 where there is no NUMA (cuda.h, cuMemCreate).
  if (kind == Kind::host) all.location = {.type = LocationType::host_numa, .id = device.numa_node().value_or(0)};
  return all;
}

Result<Bytes> MixedRange::piece_of(const Device& device, Bytes piece) {
  std::size_t both = 1;
  for (const Kind kind : {Kind::device, Kind::host}) {
    const AllocationProperties wanted = properties(device, kind);
    std::size_t granule = 0;
    if (const int number = device.calls().granularity(&granule, &wanted, granularity_recommended); number != success)
      return device.driver().error(number, "asking a GPU for the granularity of memory for tables");
    both = std::lcm(both, std::max<std::size_t>(granule, 1));
  }
  return Bytes{whole_units(std::max<std::size_t>(piece.value, 1), both)};
}

Result<MixedRange> MixedRange::make(std::shared_ptr<const Device> device, Bytes bytes, Bytes piece) {
  MixedRange range(std::move(device));
  const Device& gpu = *range.device_;
  const auto whole = piece_of(gpu, piece);
  if (!whole) return whole.error();
  range.piece_ = whole->value;
  const std::size_t count = whole_units(std::max<std::size_t>(bytes.value, 1), range.piece_) / range.piece_;
  const std::size_t most = (count + 1) * range.piece_;
  if (const int number = gpu.calls().reserve(&range.address_, most, range.piece_, 0, 0); number != success)
    return gpu.driver().error(number, "reserving " + readable({most}) + " of GPU addresses");
  range.reserved_ = most;
  while (range.pieces_.size() < count) {
    const auto handle = range.create(Kind::host);
    if (!handle) return handle.error();
    if (auto mapped = range.put(range.address_of(range.pieces_.size()), *handle, Kind::host); !mapped) {
      gpu.calls().release(*handle);
      return mapped.error();
    }
    range.pieces_.push_back({.handle = *handle, .kind = Kind::host});
  }
  return range;
}

MixedRange::MixedRange(MixedRange&& other) noexcept
    : device_(std::move(other.device_)),
      piece_(other.piece_),
      reserved_(std::exchange(other.reserved_, 0)),
      address_(other.address_),
      pieces_(std::exchange(other.pieces_, {})) {}

MixedRange::~MixedRange() {
  if (reserved_ == 0) return;
  const Current current(*device_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    take_away(address_of(i));
    device_->calls().release(pieces_[i].handle);
  }
  device_->calls().free_range(address_, reserved_);
}

Result<Handle> MixedRange::create(Kind kind) const {
  const AllocationProperties wanted = properties(*device_, kind);
  Handle handle = 0;
  if (const int number = device_->calls().create(&handle, piece_, &wanted, 0); number != success)
    return device_->driver().error(
        number,
        "taking " + readable({piece_}) + " of " + (kind == Kind::host ? "pinned host" : "GPU") + " memory for a table",
        kind == Kind::host ? Driver::Memory::of_host : Driver::Memory::of_gpu);
  return handle;
}

Result<void> MixedRange::put(Address at, Handle handle, Kind kind) const {
  const auto failed = [&](int number) {
    return device_->driver().error(number, "mapping " + readable({piece_}) + " of a table");
  };
  if (const int number = device_->calls().map(at, piece_, 0, handle, 0); number != success) return failed(number);
  const AccessDescription access{.location = {.type = LocationType::device, .id = device_->number()}};
  if (const int number = device_->calls().set_access(at, piece_, &access, 1); number != success) {
    take_away(at);
    return failed(number);
  }
  if (kind == Kind::host) {
    const AccessDescription host{.location = properties(*device_, kind).location};
    static_cast<void>(device_->calls().set_access(at, piece_, &host, 1));
  }
  return {};
}

// A refused call is tried again: where memory is given back, errors have no receiver.
void MixedRange::take_away(Address at) const noexcept {
  if (device_->calls().unmap(at, piece_) != success) device_->calls().unmap(at, piece_);
}

// The bytes of a piece into a handle, which is mapped behind the pieces meanwhile.
Result<void> MixedRange::copy_aside(std::size_t piece, Handle to, Kind kind) const {
  const Address aside = address_of(pieces_.size());
  if (auto mapped = put(aside, to, kind); !mapped) return mapped;
  auto copied = device_->copy(nullptr, aside, address_of(piece), {piece_});
  auto waited = device_->synchronize();
  if (!waited && !device_->synchronize()) die_without_memory();  // the copy may still write
  take_away(aside);
  return copied ? waited : copied;
}

Result<void> MixedRange::move(std::size_t piece, Kind to) {
  if (pieces_[piece].kind == to) return {};
  const auto handle = create(to);
  if (!handle) return handle.error();
  if (auto copied = copy_aside(piece, *handle, to); !copied) {
    device_->calls().release(*handle);
    return copied;
  }
  const Address at = address_of(piece);
  if (const int number = device_->calls().unmap(at, piece_); number != success) {
    device_->calls().release(*handle);
    return device_->driver().error(number, "unmapping " + readable({piece_}) + " of a table");
  }
  if (!put(at, *handle, to) && !put(at, *handle, to)) die_without_memory();
  device_->calls().release(pieces_[piece].handle);
  pieces_[piece] = {.handle = *handle, .kind = to};
  return {};
}

}  // namespace vedette::cuda
