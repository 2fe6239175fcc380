// The measurements, by group. A group runs in a process of its own: what breaks its context, or hangs, breaks no other
// group.
#pragma once
#include <string>
#include <vector>

#include "gpu_probe/report.h"

namespace vedette::gpu {

struct ProbeOptions {
  // activity: CUPTI, "" looks in the usual places
  std::string driver = "libcuda.so.1", energy = "libnvidia-ml.so.1", activity;
  std::string slow_directory = ".";  // whose disk is measured; "": none's
  double busy_ms = 30;               // how long a kernel runs that a call may wait for
};

struct Group {
  const char* name;
  int point;  // of the questions in bench/gpu_hour/README.md
  double limit_s;
  const char* what;                             // for --help
  void (*run)(const ProbeOptions&, Recorder&);  // throws Refused when nothing of it can be measured
};

std::vector<Group> driver_groups();  // what needs no libtorch

void measure_device(const ProbeOptions&, Recorder&);  // what kind of device it is, what it says it can do
void measure_chunks(const ProbeOptions&, Recorder&);  // 1: create, map, set access, unmap, release
// 1: remap between two kernels, the host waits for the first
void measure_remap_waited(const ProbeOptions&, Recorder&);
void measure_remap_queued(const ProbeOptions&, Recorder&);    // 1: remap between two kernels that are both queued
void measure_host_frames(const ProbeOptions&, Recorder&);     // 2
void measure_copies(const ProbeOptions&, Recorder&);          // 3
void measure_copies_by_node(const ProbeOptions&, Recorder&);  // 3: by NUMA node of the host's memory
void measure_pinned(const ProbeOptions&, Recorder&);          // 3: what pinned memory costs to get
void measure_registered(const ProbeOptions&, Recorder&);      // 3: memory that is registered in pieces
void measure_managed(const ProbeOptions&, Recorder&);         // 4
void measure_fault_records(const ProbeOptions&, Recorder&);   // 4: CUPTI
void measure_machine(const ProbeOptions&, Recorder&);         // 6
void measure_energy(const ProbeOptions&, Recorder&);          // 7

}  // namespace vedette::gpu
