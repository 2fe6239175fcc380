// Pages to the host, and records to pages: see managed_tracker.h.
#include "cuda/managed_tracker.h"

#include <string>

namespace vedette::cuda {

Result<void> ManagedTracker::works_on(const Device& device) {
  const Calls& calls = device.calls();
  const bool whole = calls.allocate_managed != nullptr && calls.free != nullptr && calls.prefetch != nullptr &&
                     calls.advise != nullptr;
  if (whole && device.attribute(Attribute::concurrent_managed_access).value_or(0) != 0) return {};
  return Error{.cause = Cause::unsupported,
               .message = std::string("pages of a GPU's memory cannot be seen here: ") +
                          (whole ? "the device takes no managed memory page by page (concurrentManagedAccess is 0)"
                                 : "the driver is older than CUDA 12.2") +
                          "; choose the page tracker best"};
}

Result<void> ManagedTracker::read_mostly(Advice advice) const {
  return device_->driver().check(device_->calls().advise(memory_.address, memory_.bytes.value, advice, {}),
                                 "advising a GPU on managed memory");
}

// Without the advice a page has one place, so that the prefetch leaves no copy on the device.
Result<void> ManagedTracker::arm(std::span<const AddressRange>) {
  const Current current(*device_);
  touched_.clear();
  if (auto waited = device_->synchronize(); !waited) return waited;
  if (auto advised = read_mostly(Advice::unset_read_mostly); !advised) return advised;
  const int number = device_->calls().prefetch(memory_.address, memory_.bytes.value,
                                               {.type = LocationType::host, .id = 0}, 0, nullptr);
  if (number != success)
    return device_->driver().error(number, "bringing managed memory to the host", Driver::Memory::of_host);
  if (auto waited = device_->synchronize(); !waited) return waited;
  if (auto advised = read_mostly(Advice::set_read_mostly); !advised) return advised;
  static_cast<void>(records_->take());  // of accesses before, and lost ones among them
  return {};
}

void ManagedTracker::note(const CounterRecord& record) {
  if (!record.is_fault_of_device() || record.address < memory_.address ||
      record.address >= memory_.address + memory_.bytes.value)
    return;
  Access& access = touched_[record.address / page_size * page_size];
  switch (record.access()) {
    case FaultAccess::prefetch:
      break;
    case FaultAccess::read:
      access.read = true;
      break;
    case FaultAccess::write:
      access.written = true;
      break;
    case FaultAccess::atomic:
    case FaultAccess::unknown:
      access.read = access.written = true;
  }
}

Result<void> ManagedTracker::collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) {
  const Current current(*device_);
  if (auto waited = device_->synchronize(); !waited) return waited;
  const auto records = records_->take();
  if (!records) return records.error();
  for (const CounterRecord& record : *records) note(record);
  for (const AddressRange& range : ranges) {
    const Address address = memory_.address_of(range.begin);
    if (address == 0) continue;
    const auto first = touched_.lower_bound(address), last = touched_.lower_bound(address + range.bytes);
    const std::size_t before = touched.size();
    for (auto each = first; each != last; ++each) {
      const auto& [page, access] = *each;
      if (!access.read && !access.written) continue;
      std::byte* const begin = range.begin + (page - address);
      TouchedRange* const latest = touched.size() > before ? &touched.back() : nullptr;
      if (latest != nullptr && latest->pages.begin + latest->pages.bytes == begin && latest->read == access.read &&
          latest->written == access.written)
        latest->pages.bytes += page_size;
      else
        touched.push_back({.pages = {begin, page_size}, .read = access.read, .written = access.written});
    }
    touched_.erase(first, last);
  }
  return {};
}

Result<void> ManagedTracker::disarm(std::span<const AddressRange>) {
  const Current current(*device_);
  return read_mostly(Advice::unset_read_mostly);
}

}  // namespace vedette::cuda
