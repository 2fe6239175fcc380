// Modules of kernels, and their launches. A module is the text of its PTX, whose entries are kernels of bench/gpu_probe
// (probe_kernels.h), or a cubin (cubin.h), whose kernels are interpreted (interpreted.h). Another kernel ends the
// process with its name.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/api.h"
#include "simulated_gpu/cubin.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/interpreted.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/order.h"
#include "simulated_gpu/probe_kernels.h"
#include "simulated_gpu/reports.h"
#include "simulated_gpu/streams.h"

using namespace vedette::cuda;
using namespace vedette::simulated;

namespace {

struct Module {
  std::string ptx;
  std::shared_ptr<const Cubin> cubin;  // shared: a launch is queued with it, and the module may be unloaded meanwhile
};

struct Function {
  std::string name;
  std::shared_ptr<const Cubin> cubin;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  StreamHandle stream;
  void* attributes;
  unsigned attribute_count;
};

constexpr int error_file_not_found = 301;
constexpr unsigned most_threads = 1024;  // of a block

std::atomic<AskAccesses> ask_accesses{nullptr};  // relaxed: set before the first launch, by the thread that launches
std::atomic<RunInterpreted> run_interpreted{nullptr};

// Copies of the arguments, and the plain structure over them.
class Launch {
 public:
  Launch(const Function& function, const unsigned* grid, void** arguments)
      : name_(function.name), cubin_(function.cubin) {
    for (const std::size_t bytes : cubin_->kernels.at(name_)) {
      const auto* const first = static_cast<const std::byte*>(arguments[values_.size()]);
      values_.emplace_back(first, first + bytes);
      sizes_.push_back(bytes);
    }
    for (const auto& value : values_) pointers_.push_back(value.data());
    plain_ = {.name = name_.c_str(),
              .image = cubin_->image.data(),
              .image_bytes = cubin_->image.size(),
              .grid = {grid[0], grid[1], grid[2]},
              .argument_count = static_cast<unsigned>(values_.size()),
              .arguments = pointers_.data(),
              .argument_bytes = sizes_.data(),
              .access_count = 0,
              .accesses = nullptr};
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  std::vector<Access> ask(AskAccesses asked) {
    accesses_.resize(4096);
    accesses_.resize(static_cast<std::size_t>(asked(&plain_, accesses_.data(), static_cast<int>(accesses_.size()))));
    plain_.access_count = static_cast<unsigned>(accesses_.size());
    plain_.accesses = accesses_.data();
    std::vector<Access> found;
    for (const InterpretedAccess& each : accesses_)
      found.push_back({.at = each.at, .bytes = each.bytes, .write = each.write != 0});
    return found;
  }
  const InterpretedLaunch& plain() const { return plain_; }

 private:
  const std::string name_;
  const std::shared_ptr<const Cubin> cubin_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<const void*> pointers_;
  std::vector<std::size_t> sizes_;
  std::vector<InterpretedAccess> accesses_;
  InterpretedLaunch plain_{};
};

KernelWork work_of(const Function& function, const unsigned* grid, void** arguments) {
  if (auto of_probe = probe_kernel(function.name, arguments); of_probe && function.cubin == nullptr) return *of_probe;
  const AskAccesses ask = ask_accesses.load(std::memory_order_relaxed);
  if ((function.cubin == nullptr || ask == nullptr) && options().skip_kernels) {
    count_missing(function.name);
    return {.accesses = {}, .run = [] {}};
  }
  if (function.cubin == nullptr || ask == nullptr)
    misuse("the kernel " + function.name +
           " is launched, which the simulation does not know; add it to probe_kernels.cc, or interpret kernels of "
           "cubins (interpreted.h)");
  const auto launched = std::make_shared<Launch>(function, grid, arguments);
  return {.accesses = launched->ask(ask), .run = [launched] {
            if (const auto run = run_interpreted.load(std::memory_order_relaxed)) run(&launched->plain());
          }};
}

int launch_kernel(const Function& function, const unsigned* grid, const unsigned* block, StreamHandle stream,
                  void** arguments) {
  const auto product = [](const unsigned* of) { return std::uint64_t{of[0]} * of[1] * of[2]; };
  if (product(grid) == 0 || product(block) == 0 || product(block) > most_threads) return error_invalid_value;
  KernelWork work = work_of(function, grid, arguments);
  launch(*stream_of(stream), function.name, work.accesses, std::move(work.run));
  return success;
}

Module* read_module(const char* image) {
  if (is_cubin(image)) return new Module{.ptx = {}, .cubin = std::make_shared<Cubin>(read_cubin(image))};
  return new Module{.ptx = image, .cubin = nullptr};
}

}  // namespace

SIMULATED_EXPORT int cuModuleLoadData(Module** module, const void* image) {
  if (const int error = enter("cuModuleLoadData"); error != 0) return error;
  *module = read_module(static_cast<const char*>(image));
  return success;
}

SIMULATED_EXPORT int cuModuleLoadDataEx(Module** module, const void* image, unsigned, int*, void**) {
  return cuModuleLoadData(module, image);
}

SIMULATED_EXPORT int cuModuleLoad(Module** module, const char* path) {
  if (const int error = enter("cuModuleLoad"); error != 0) return error;
  std::ifstream file(path, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  if (image.empty()) return error_file_not_found;
  *module = read_module(image.c_str());
  return success;
}

SIMULATED_EXPORT int cuModuleUnload(Module* module) {
  if (const int error = enter("cuModuleUnload"); error != 0) return error;
  delete module;
  return success;
}

SIMULATED_EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  if (const int error = enter("cuModuleGetFunction"); error != 0) return error;
  const bool found = module->cubin != nullptr
                         ? module->cubin->kernels.contains(name)
                         : module->ptx.find(std::string(".entry ") + name + "(") != module->ptx.npos;
  if (!found) return error_not_found;
  *function = new Function{.name = name, .cubin = module->cubin};  // few, and as long as the process
  return success;
}

SIMULATED_EXPORT int cuFuncGetAttribute(int* value, int which, Function*) {
  constexpr int max_threads_per_block = 0, registers = 4;  // CU_FUNC_ATTRIBUTE_*
  *value = which == max_threads_per_block ? static_cast<int>(most_threads) : which == registers ? 32 : 0;
  return enter("cuFuncGetAttribute");
}

SIMULATED_EXPORT int cuFuncSetAttribute(Function*, int, int) { return enter("cuFuncSetAttribute"); }
SIMULATED_EXPORT int cuFuncSetCacheConfig(Function*, int) { return enter("cuFuncSetCacheConfig"); }

SIMULATED_EXPORT int cuOccupancyMaxActiveClusters(int* count, Function*, const void*) {
  *count = 1;
  return enter("cuOccupancyMaxActiveClusters");
}

SIMULATED_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, Function*, int, std::size_t) {
  *count = 1;
  return enter("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

// The 128 bytes are opaque to a program. Here they are the address, the type, the rank, extents, and strides in bytes.
SIMULATED_EXPORT int cuTensorMapEncodeTiled(void* map, int type, std::uint32_t rank, void* at,
                                            const std::uint64_t* extents, const std::uint64_t* strides,
                                            const std::uint32_t*, const std::uint32_t*, int, int, int, int) {
  if (const int error = enter("cuTensorMapEncodeTiled", false); error != 0) return error;
  if (rank == 0 || rank > 5) return error_invalid_value;
  std::uint64_t words[16] = {reinterpret_cast<std::uint64_t>(at), static_cast<std::uint64_t>(type), rank};
  std::copy_n(extents, rank, words + 3);
  std::copy_n(strides, rank - 1, words + 8);
  std::memcpy(map, words, sizeof words);
  return success;
}

SIMULATED_EXPORT int cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned, StreamHandle stream,
                                    void** arguments, void**) {
  if (const int error = enter("cuLaunchKernel"); error != 0) return error;
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  return launch_kernel(*function, grid, block, stream, arguments);
}

SIMULATED_EXPORT int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** arguments, void**) {
  if (const int error = enter("cuLaunchKernelEx"); error != 0) return error;
  return launch_kernel(*function, config->grid, config->block, config->stream, arguments);
}

SIMULATED_EXPORT void simulated_gpu_interpret(AskAccesses ask, RunInterpreted run) {
  ask_accesses.store(ask, std::memory_order_relaxed);
  run_interpreted.store(run, std::memory_order_relaxed);
}
SIMULATED_EXPORT void* simulated_gpu_reach(const void* device) { return memory().reach(device); }
SIMULATED_EXPORT std::size_t simulated_gpu_race_count() { return order().races().size(); }
SIMULATED_EXPORT void simulated_gpu_end(const char* sentence) { misuse(sentence); }
