// Modules of kernels: the simulated device runs those of bench/gpu_probe (gpu_probe/kernels.h), by name, on the
// processor. A module is the text of its PTX, and has the kernels that are entries there. Another kernel ends the
// process with its name.
//
// Arguments are read when a kernel is launched, since they live until then.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cuda/api.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/streams.h"

using namespace vedette::cuda;
using namespace vedette::simulated;

namespace {

using Module = std::string;    // PTX
using Function = std::string;  // its name

struct Kernel {
  std::vector<Access> accesses;  // of large memory; words that kernel and host share are no matter of order
  std::function<void()> run;
};

class Arguments {
 public:
  explicit Arguments(void** pointers) : pointers_(pointers) {}
  template <class T>
  T at(std::size_t index) const {
    T value;
    std::memcpy(&value, pointers_[index], sizeof value);
    return value;
  }
  Address address(std::size_t index) const { return at<Address>(index); }
  std::uint64_t count(std::size_t index) const { return at<std::uint64_t>(index); }
  std::uint32_t word(std::size_t index) const { return at<std::uint32_t>(index); }

 private:
  void** pointers_;
};

void* pointer(Address at) { return reinterpret_cast<void*>(at); }
std::uint32_t* words_at(Address at) { return static_cast<std::uint32_t*>(memory().reach(pointer(at))); }
volatile std::uint32_t& flag(Address at) { return *words_at(at); }
Access access(Address at, std::size_t bytes, bool write) { return {.at = pointer(at), .bytes = bytes, .write = write}; }

// compute and walk: until stopped, or for a time at most.
Kernel busy(const Arguments& given, bool walks) {
  const std::uint64_t ns = given.count(0);
  const Address started = given.address(1), stop = given.address(2), from = walks ? given.address(3) : 0;
  const std::size_t bytes = walks ? given.count(4) * 16 : 0;
  const auto run = [=] {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::nanoseconds(ns);
    flag(started) = 1;
    while (flag(stop) == 0 && Clock::now() < end) {
      for (std::size_t at = 0; at < bytes; at += 4096) ++*words_at(from + at);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  };
  if (!walks) return {.accesses = {}, .run = run};
  return {.accesses = {access(from, bytes, true)}, .run = run};
}

Kernel write(const Arguments& given) {
  const Address to = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(to, words * 4, true)},
          .run = [=, value = given.word(2)] { std::fill_n(words_at(to), words, value); }};
}

Kernel read(const Arguments& given) {
  const Address from = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(from, words * 4, false)}, .run = [=, sink = given.address(2)] {
            std::uint32_t all = 0;
            for (std::size_t i = 0; i < words; i += 16) all ^= words_at(from)[i];
            if (all == 0x9E3779B9) flag(sink) = all;
          }};
}

Kernel check(const Arguments& given) {
  const Address from = given.address(0);
  const std::size_t words = given.count(1) * 4;
  return {.accesses = {access(from, words * 4, false)}, .run = [=, value = given.word(2), wrong = given.address(3)] {
            const std::uint32_t* const first = words_at(from);
            if (std::any_of(first, first + words, [&](std::uint32_t each) { return each != value; })) flag(wrong) = 1;
          }};
}

// touch and store: one word of each stride.
Kernel each_stride(const Arguments& given, bool written) {
  const Address from = given.address(0);
  const std::uint64_t stride = given.count(1), count = given.count(2);
  const Address sink = written ? 0 : given.address(3);
  const auto run = [=] {
    std::uint32_t all = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      volatile std::uint32_t& word = flag(from + i * stride);
      if (written) word = 1;
      if (!written) all += word;
    }
    if (!written && all == 0x9E3779B9) flag(sink) = all;
  };
  return {.accesses = {access(from, stride * count, written)}, .run = run};
}

const std::map<std::string, Kernel (*)(const Arguments&)>& kernels() {
  static const std::map<std::string, Kernel (*)(const Arguments&)> known = {
      {"compute", [](const Arguments& given) { return busy(given, false); }},
      {"walk", [](const Arguments& given) { return busy(given, true); }},
      {"read", read},
      {"write", write},
      {"check", check},
      {"touch", [](const Arguments& given) { return each_stride(given, false); }},
      {"store", [](const Arguments& given) { return each_stride(given, true); }}};
  return known;
}

}  // namespace

SIMULATED_EXPORT int cuModuleLoadData(Module** module, const void* image) {
  if (const int error = enter("cuModuleLoadData"); error != 0) return error;
  *module = new Module(static_cast<const char*>(image));
  return success;
}

SIMULATED_EXPORT int cuModuleUnload(Module* module) {
  if (const int error = enter("cuModuleUnload"); error != 0) return error;
  delete module;
  return success;
}

SIMULATED_EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  if (const int error = enter("cuModuleGetFunction"); error != 0) return error;
  if (module->find(std::string(".entry ") + name + "(") == module->npos) return error_not_found;
  *function = new Function(name);  // few, and as long as the process
  return success;
}

SIMULATED_EXPORT int cuLaunchKernel(Function* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                                    unsigned, unsigned, StreamHandle stream, void** arguments, void**) {
  if (const int error = enter("cuLaunchKernel"); error != 0) return error;
  if (blocks == 0 || threads == 0 || threads > 1024) return error_invalid_value;
  const auto known = kernels().find(*function);
  if (known == kernels().end())
    misuse("the kernel " + *function + " is launched, which the simulation does not know; add it to modules.cc");
  Kernel kernel = known->second(Arguments(arguments));
  launch(*stream_of(stream), *function, kernel.accesses, std::move(kernel.run));
  return success;
}
