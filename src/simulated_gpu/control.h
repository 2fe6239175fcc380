// What a test asks of the simulated GPU, beside CUDA's own interface. The code under test never includes this.
//
// A test program finds it by dlsym("simulated_gpu") in the libcuda.so.1 that it loaded. Thread rule: any thread.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simulated_gpu/options.h"
#include "simulated_gpu/streams.h"

namespace vedette::simulated {

class Control {
 public:
  virtual ~Control() = default;
  // Options of a process are chosen before its first call, but for rates, switches and failing calls: these may change.
  virtual void choose(const Options&) = 0;
  // From now on the nth call (1: the next) of `call` fails with `error`. One failure a call's name.
  virtual void fail(const std::string& call, unsigned nth, int error) = 0;
  virtual void fail_none() = 0;
  virtual std::map<std::string, unsigned> calls() = 0;  // made so far, by name
  virtual std::vector<std::string> races() = 0;
  virtual void forget_races() = 0;
  // All that was taken and not given back, as sentences; empty when there is nothing.
  virtual std::vector<std::string> leaks() = 0;
  virtual std::size_t most_in_use() = 0;  // bytes of device memory, since the process began
  virtual std::size_t in_use() = 0;       // now
  virtual void launch(cuda::StreamHandle, std::string_view what, const std::vector<Access>&, std::function<void()>) = 0;
  virtual void* reach(const void* device) = 0;  // for kernels that launch() runs
};

}  // namespace vedette::simulated

extern "C" vedette::simulated::Control* simulated_gpu();
