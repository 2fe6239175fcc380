// A driver that is none: a shared object with the entry points of CUDA's driver, NVML and CUPTI that the probe uses, on
// the processor.
//
// Memory is real (a frame is a memory file, mapping one is mmap), streams are threads, kernels are known by name, so
// that what the probe checks in memory is really checked. It is strict: what the real driver forbids is an error, and
// is told as "misuse" in the log; what is left when the context is released is told as "leak".
//
// Environment: GPU_FAKE, a list "key=value key=value"; GPU_FAKE_LOG, a file to which a line goes for each call.
//   FUNCTION=error:N  us:N  hang  crash  waits   each call fails with N; takes N microseconds more; never comes back;
//   kills the process;
//                                                waits until the device is idle. FUNCTION@T: for location type T only.
//   free_mib=N  devices=0  stale=1 (a map after the first shows another frame)  pageable=1  tables=1  batch=0 (no
//   cuMemcpyBatchAsync) records=no_access (faults say neither read nor write)
// Thread rule: any, as the real ones.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <shared_mutex>
#include <string>

#include "gpu_probe/cuda_api.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace vedette::gpu::fake {

std::string script(const std::string& key, const std::string& otherwise = "");
void log(const std::string& line);
// What every entry point begins with: logs the call and does what the script says. Not 0: the error to return.
int enter(const char* function, int location_type = 0);

struct Region {  // addresses that a kernel or a copy may use, or will when access is given
  std::size_t bytes = 0;
  enum class Kind { mapped, allocated, pinned, registered, managed } kind = Kind::mapped;
  bool access = true;
};

struct State {
  std::shared_mutex memory;               // shared: by whoever uses memory; alone: by whoever changes what is mapped
  std::map<Address, Region> regions;      // guarded by memory
  std::map<Address, std::size_t> ranges;  // reserved
  std::map<Handle, int> frames;           // to the file that holds the bytes
  std::map<Handle, std::size_t> frame_bytes;
  std::atomic<int> sticky{0};   // the error that every later call returns
  std::atomic<int> pending{0};  // commands in all streams
  std::atomic<int> streams{0}, events{0};
};
State& state();

bool accessible(Address at, std::size_t bytes);  // the caller holds state().memory
void wait_until_idle();
void tell_leaks();
void record_fault(Address page, bool written);  // for the activity records

}  // namespace vedette::gpu::fake
