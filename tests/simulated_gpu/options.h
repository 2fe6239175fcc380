// How the simulated GPU is made, and the one way in which it ends a process.
//
// The environment variable SIMULATED_GPU is a list "key=value key=value"; control.h sets the same from inside a test.
//   memory_mib=N      device memory (1024)
//   devices=N         so many GPUs, which share memory and streams (1)
//   gbs=X             rate of a link, each direction, in 10^9 bytes a second (0: as fast as memcpy)
//   latency_us=N      added to each copy over a link (0)
//   one_engine=1      one copy engine serves both directions
//   copies_wait=1     no copy runs beside a kernel
//   unmap_waits=1     cuMemUnmap waits until the device is idle
//   managed=0         no managed memory that the device takes page by page
//   sums_vary=1       products of matrices differ in a last bit from call to call, unless libtorch is asked for
//                     deterministic algorithms and cuBLAS for workspaces that allow them
//   races=0           no search for accesses that nothing orders
//   fail=CALL@N:E     the N-th call of CALL (counted from 1) returns error E and does nothing; may be given several
//   times
// Thread rule: any thread.
#pragma once
#include <cstddef>
#include <map>
#include <string>

namespace vedette::simulated {

struct Failing {
  unsigned nth = 1;
  int error = 2;
};

struct Options {
  std::size_t memory = std::size_t{1} << 30;
  int devices = 1;
  double gbs = 0, latency_us = 0;
  bool one_engine = false, copies_wait = false, unmap_waits = false, races = true, sums_vary = false, managed = true;
  std::multimap<std::string, Failing> failing;
};

// Of the text in SIMULATED_GPU. A word that is not known ends the process with a sentence.
Options parse_options(const std::string& text);

constexpr int exit_status = 70;  // of a process that the simulated GPU ended, or that had races

// Writes "simulated GPU: SENTENCE" to standard error and ends the process with exit_status.
[[noreturn]] void misuse(const std::string& sentence) noexcept;

}  // namespace vedette::simulated
