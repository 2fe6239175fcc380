// How the simulated GPU is made, and the one way in which it ends a process.
//
// The environment variable SIMULATED_GPU is a list "key=value key=value"; control.h sets the same from inside a test.
//   memory_mib=N      device memory (1024)
//   context_mib=N    what NVML says that a process takes beside what it allocated: its context (0)
//   lock_mib=N       so much of the host's memory can be pinned (0: any)
//   devices=N         so many GPUs, which share memory and streams: a pointer is the current one's (1)
//   shared=FILE       the device's memory is shared with processes that name the same file
//   gbs=X             rate of a link, each direction, in 10^9 bytes a second (0: as fast as memcpy)
//   latency_us=N      added to each copy over a link (0); a third of it where copies come in one call
//   one_engine=1      one copy engine serves both directions
//   copies_wait=1     no copy runs beside a kernel
//   unmap_waits=1     cuMemUnmap waits until the device is idle
//   stale_maps=1      cuMemMap shows other memory than the one it was asked for, from its third call on
//   managed=0         no managed memory that the device takes page by page
//   pageable=1        the device says that it reads the host's pageable memory; page_tables=1: by the host's tables
//   cuda=N            the driver's version: 12080 is CUDA 12.8 (13000)
//   batched_copies=0  no cuMemcpyBatchAsync, as before CUDA 12.8
//   fault_records=N   room for so many of CUPTI's records between two flushes; more are lost (1000000)
//   fault_access=0    CUPTI's records of faults do not say what the access was
//   sums_vary=1       products of matrices differ in a last bit from call to call, unless libtorch is asked for
//                     deterministic algorithms and cuBLAS for workspaces that allow them
//   first_calls_order=0  an operator's first call, for which the host waits to learn its results, orders nothing: the
//                     real device would not wait
//   skip_kernels=1    a kernel that the device has not is left out, instead of ending the process
//   races=0           no search for accesses that nothing orders
//   leaks=1           what was not given back ends the process when the primary context is released
//   fail=CALL@N:E     the N-th call of CALL (counted from 1; *: each one) returns error E and does nothing
//   slow=CALL@N:US    that call takes so many microseconds more
//   hang=CALL@N       that call never comes back
//   crash=CALL@N      that call kills the process
// The last four may be given several times. CALL is a function of the driver, of the runtime, of NVML or of CUPTI;
// cuMemCreate/device@*, cuMemCreate/host@* and cuMemCreate/host_numa@* are those for memory of one kind.
// Thread rule: any thread.
#pragma once
#include <cstddef>
#include <map>
#include <string>

namespace vedette::simulated {

struct Failing {
  unsigned nth = 1;  // 0: each call
  int error = 2;     // that it returns; 0: none
  int slow_us = 0;
  bool hangs = false, crashes = false;
};

struct Options {
  std::size_t memory = std::size_t{1} << 30, context = 0, lock = 0;
  int devices = 1, cuda = 13000;
  double gbs = 0, latency_us = 0;
  bool one_engine = false, copies_wait = false, unmap_waits = false, races = true, sums_vary = false, managed = true;
  bool stale_maps = false, pageable = false, page_tables = false, batched_copies = true, leaks = false;
  std::size_t fault_records = 1'000'000;
  bool fault_access = true, first_calls_order = true, skip_kernels = false;
  std::string shared;
  std::multimap<std::string, Failing> failing;
};

// Of the text in SIMULATED_GPU. A word that is not known ends the process with a sentence.
Options parse_options(const std::string& text);

// What the script says of this call: takes its time, hangs, or kills the process here; returns its error.
int follow(const std::multimap<std::string, Failing>& script, const std::string& call, unsigned number);

constexpr int exit_status = 70;  // of a process that the simulated GPU ended, or that had races

// Writes "simulated GPU: SENTENCE" to standard error and ends the process with exit_status.
[[noreturn]] void misuse(const std::string& sentence) noexcept;
extern void (*before_the_end)(const std::string& sentence);  // called by misuse; nullptr: nothing

}  // namespace vedette::simulated
