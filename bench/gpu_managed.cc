// The pool over managed memory, and the prefetches: see gpu_managed.h.
#include "gpu_managed.h"

#include <ATen/cuda/MemPool.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace vedette::bench {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

constexpr std::size_t ahead = 16;                    // announcements
constexpr std::size_t smallest = 64 << 10;           // bytes of a tensor that is worth a call
constexpr std::size_t whole = std::size_t{2} << 20;  // the driver's blocks
constexpr cudaMemLocation device{.type = cudaMemLocationTypeDevice, .id = 0};

void require(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string(call) + " failed: " + cudaGetErrorString(error));
}

struct Piece {
  const void* at = nullptr;
  std::size_t bytes = 0;
};

struct AnnouncedOp {
  const char* name = nullptr;  // of the operator: one address for each
  std::vector<Piece> pieces;   // that none of the `ahead` ops before used
};

struct OpenOp final : at::ObserverContext {
  explicit OpenOp(std::size_t number) : index(number) {}
  std::size_t index;
};

template <class Values, class Action>
void each_tensor(const Values& values, const Action& action) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      action(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) action(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector())
        if (tensor) action(*tensor);
    }
  }
}

class Managed final : public ManagedMemory {
 public:
  Managed() {
    int concurrent = 0;
    require(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0), "cudaDeviceGetAttribute");
    if (concurrent == 0)
      throw std::runtime_error(
          "this device has no managed memory that it takes page by page (concurrentManagedAccess is 0); "
          "leave the cell out with --only");
    require(cudaStreamCreateWithFlags(&prefetching_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    require(cudaEventCreateWithFlags(&passed_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }

  void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    if (cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    require(cudaMemAdvise(memory, bytes, cudaMemAdviseSetPreferredLocation, device), "cudaMemAdvise");
    const std::lock_guard lock(guard_);
    counts_.segment_bytes += bytes;
    return memory;
  }
  void free(void* memory, std::size_t bytes) {
    static_cast<void>(cudaFree(memory));  // it waits for the device
    const std::lock_guard lock(guard_);
    counts_.segment_bytes -= bytes;
  }

  std::uint64_t leave_free(std::uint64_t bytes) override {
    caching::emptyCache();
    std::size_t free = 0, all = 0;
    require(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    if (free < bytes + whole) return 0;
    const std::size_t held = (free - bytes) / whole * whole;
    void* ballast = nullptr;
    require(cudaMalloc(&ballast, held), "cudaMalloc of what the budget leaves");
    return held;
  }

  void begin_step() override {
    const std::lock_guard lock(guard_);
    before_.swap(now_);
    now_.clear();
    last_use_.clear();
  }

  Counts counts() const override {
    const std::lock_guard lock(guard_);
    return counts_;
  }

  std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& function) {
    const std::lock_guard lock(guard_);
    const std::size_t index = now_.size();
    now_.push_back({.name = function.name()});
    note(index, function.inputs());
    if (index < before_.size() && before_[index].name == function.name() && index + ahead < before_.size())
      prefetch(before_[index + ahead].pieces);
    return std::make_unique<OpenOp>(index);
  }
  void end_op(const at::RecordFunction& function, const at::ObserverContext* context) {
    const std::lock_guard lock(guard_);
    const std::size_t index = static_cast<const OpenOp*>(context)->index;
    if (index < now_.size()) note(index, function.outputs());
  }

 private:
  template <class Values>
  void note(std::size_t index, const Values& values) {
    each_tensor(values, [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return;
      const Piece piece{.at = tensor.storage().data(), .bytes = tensor.storage().nbytes()};
      if (piece.at == nullptr || piece.bytes < smallest) return;
      const auto [last, first_use] = last_use_.try_emplace(piece.at, index);
      if (first_use || index - last->second > ahead) now_[index].pieces.push_back(piece);
      last->second = index;
    });
  }

  void prefetch(const std::vector<Piece>& pieces) {
    if (pieces.empty()) return;
    const cudaStream_t here = c10::cuda::getCurrentCUDAStream().stream();
    if (cudaEventRecord(passed_, here) != cudaSuccess || cudaStreamWaitEvent(prefetching_, passed_, 0) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    for (const Piece& piece : pieces) {
      const bool taken = cudaMemPrefetchAsync(piece.at, piece.bytes, device, 0, prefetching_) == cudaSuccess;
      if (!taken) static_cast<void>(cudaGetLastError());  // its segment was freed since
      counts_.prefetches += taken ? 1 : 0;
      counts_.prefetched_bytes += taken ? piece.bytes : 0;
      counts_.refused += taken ? 0 : 1;
    }
  }

  cudaStream_t prefetching_ = nullptr;
  cudaEvent_t passed_ = nullptr;
  mutable std::mutex guard_;  // of all below
  std::vector<AnnouncedOp> before_, now_;
  std::unordered_map<const void*, std::size_t> last_use_;  // [tensor's address] -> index of an op of this step
  Counts counts_;
};

Managed* managed = nullptr;  // for ever: libtorch frees through it after main() has ended

}  // namespace
}  // namespace vedette::bench

vedette::bench::ManagedMemory* gpu_table_use_managed_memory() {
  using namespace vedette::bench;
  managed = new Managed;
  const auto custom = torch::cuda::CUDAPluggableAllocator::createCustomAllocator(
      [](std::size_t bytes, int, cudaStream_t) { return managed->allocate(bytes); },
      [](void* memory, std::size_t bytes, int, cudaStream_t) { managed->free(memory, bytes); });
  auto* const pool = new at::cuda::MemPool(custom);
  caching::beginAllocateToPool(0, pool->id(), [](cudaStream_t) { return true; });
  at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) { return managed->begin_op(function); },
                                 [](const at::RecordFunction& function, at::ObserverContext* context) {
                                   if (context != nullptr) managed->end_op(function, context);
                                 })
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  return managed;
}
