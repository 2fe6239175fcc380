// The kernels of bench/gpu_probe (gpu_probe/kernels.h), by name, on the processor.
//
// Arguments are read when a kernel is launched, since they live until then. Thread rule: any thread.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulated_gpu/streams.h"

namespace vedette::simulated {

struct KernelWork {
  std::vector<Access> accesses;  // of large memory; words that kernel and host share are no matter of order
  std::function<void()> run;     // on the stream's thread
};

// Nothing: it is none of these.
std::optional<KernelWork> probe_kernel(const std::string& name, void** arguments);

}  // namespace vedette::simulated
