// The pages of managed memory that a GPU's kernels touched, by CUPTI's records of the faults that the device took for
// them. A page faults where it is first used since it came to the host: arm() sends all of them there.
//
// The memory is advised to be read mostly: a page that is read and then written faults twice, and so does not pass for
// one that was only read. A driver may bring neighbours of a page along, up to 2 MiB, which then take no fault. Where
// it does so it says too few pages, until it is told not to (uvm_perf_prefetch_enable=0 of nvidia_uvm). Copies that run
// between arm() and collect() count as accesses.
//
// Each call waits for the device: it is for small runs. Thread rule: any thread, one call at a time; no op is queued
// meanwhile.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "cuda/device.h"
#include "cuda/fault_records.h"
#include "os/page_tracker.h"

namespace vedette::cuda {

class ManagedTracker final : public PageTracker {
 public:
  struct Memory {
    Address address = 0;
    Bytes bytes;
    // Where the memory lies now that has this name: ranges of collect() are named, not addressed. 0: elsewhere.
    std::function<Address(const std::byte* name)> address_of;
  };

  // An error, one sentence: the driver lacks a function, or the device takes no managed memory page by page.
  static Result<void> works_on(const Device& device);

  ManagedTracker(std::shared_ptr<const Device> device, std::unique_ptr<FaultRecords> records, Memory memory)
      : device_(std::move(device)), records_(std::move(records)), memory_(std::move(memory)) {}

  // All of the memory, whatever the ranges are. Pages that collect() has told are seen again only after this.
  Result<void> arm(std::span<const AddressRange> ranges) override;
  Result<void> collect(std::span<const AddressRange> ranges, std::vector<TouchedRange>& touched) override;
  Result<void> disarm(std::span<const AddressRange> ranges) override;
  bool sees_system_calls() const noexcept override { return false; }
  std::string_view mechanism() const noexcept override { return "page faults of managed memory, recorded by CUPTI"; }

 private:
  struct Access {
    bool read = false, written = false;
  };
  Result<void> read_mostly(Advice advice) const;
  void note(const CounterRecord& record);

  const std::shared_ptr<const Device> device_;
  const std::unique_ptr<FaultRecords> records_;
  const Memory memory_;
  std::map<Address, Access> touched_;  // by page, since arm(), without what was collected
};

}  // namespace vedette::cuda
