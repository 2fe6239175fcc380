// The facade: see cuda_facade.h.
#include "adapter/torch/cuda_facade.h"

#include <algorithm>
#include <map>
#include <shared_mutex>
#include <tuple>

#include "adapter/torch/cuda_delegate.h"

// As ATen/cuda/CUDAContextLight.h has them, which includes cuBLAS's headers: the wheels beside libtorch leave those
// out.
namespace at::cuda {
struct WorkspaceMapWithMutex {
  std::map<std::tuple<void*, void*>, at::DataPtr> map;
  std::shared_mutex mutex;
};
void* getCurrentCUDABlasHandle();
void* getCUDABlasLtWorkspace();
WorkspaceMapWithMutex& cublas_handle_stream_to_workspace();
WorkspaceMapWithMutex& cublaslt_handle_stream_to_workspace();
std::size_t getChosenWorkspaceSize();
std::size_t getCUDABlasLtWorkspaceSize();
}  // namespace at::cuda

namespace vedette::adapter {
namespace {

class Facade final : public CudaDelegate {
 public:
  Facade(caching::CUDAAllocator* native, CudaHooks& hooks) : CudaDelegate(native), hooks_(hooks) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr memory = hooks_.allocate(bytes);
    if (memory.get_context() == nullptr) return native_->allocate(bytes);
    return memory;
  }
  // A pointer of allocate() cannot be freed by this alone, while a guard lives.
  c10::DeleterFnPtr raw_deleter() const override { return hooks_.held(false) ? nullptr : native_->raw_deleter(); }
  // The largest piece that an allocation gets without a move.
  void cacheInfo(Device device, std::size_t* largest) override {
    const auto held = device == 0 ? hooks_.held(true) : std::nullopt;
    if (!held) return native_->cacheInfo(device, largest);
    std::uint64_t at = held->memory.address, most = 0;
    for (const CudaHooks::Held::Block& block : held->blocks) {
      most = std::max(most, block.address - at);
      at = block.address + block.bytes;
    }
    *largest = static_cast<std::size_t>(std::max(most, held->memory.address + held->memory.bytes - at));
  }
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override {
    if (!hooks_.record_stream(memory, stream.stream())) native_->recordStream(memory, stream);
  }
  // Allocated and active: the tensors that lie in GPU memory now, and the hot pieces of tables; what is away is not
  // counted. Reserved: the budget of tensors, and the hot pieces. The sum of peaks, libtorch's and ours, is at least
  // the peak of the sum.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device device) override {
    auto stats = native_->getDeviceStats(device);
    const auto held = device == 0 ? hooks_.held(false) : std::nullopt;
    if (!held) return stats;
    const auto add = [](c10::CachingAllocator::StatArray& array, std::uint64_t now, std::uint64_t most) {
      constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE),
                     large = static_cast<std::size_t>(c10::CachingAllocator::StatType::LARGE_POOL);
      for (const std::size_t type : {all, large}) {
        array[type].current += static_cast<std::int64_t>(now);
        array[type].peak += static_cast<std::int64_t>(most);
      }
    };
    const std::uint64_t hot = held->tables.device_bytes, most_hot = held->tables.most_device_bytes;
    for (auto* const array : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes})
      add(*array, held->memory.in_use + hot, held->memory.most_in_use + most_hot);
    add(stats.reserved_bytes, held->memory.bytes + hot, held->memory.bytes + most_hot);
    return stats;
  }
  // More segments: the guard's range, with blocks and holes, and behind it the hot pieces of tables, neighbours as one.
  caching::SnapshotInfo snapshot(Pool pool, bool traces) override {
    auto info = native_->snapshot(pool, traces);
    const auto held = pool == Pool{0, 0} ? hooks_.held(true) : std::nullopt;
    if (!held) return info;
    info.segments.push_back(segment_of(held->memory.address, held->memory.bytes, held->blocks));
    for (const GpuMemory::HotPart& part : held->table_parts)
      info.segments.push_back(segment_of(part.address, part.bytes, {{part.address, part.bytes}}));
    return info;
  }
  // The first thing that a capture asks for, and a MemPool.
  void beginAllocateToPool(Device device, Pool pool, std::function<bool(cudaStream_t)> filter) override {
    TORCH_CHECK(!hooks_.held(false),
                "a CUDA graph or a MemPool while a vedette::Guard of GPU memory lives: its tensors change their "
                "addresses, which a graph keeps; capture the graph before the guard or after it, or leave it out");
    native_->beginAllocateToPool(device, pool, std::move(filter));
  }

 private:
  static c10::CachingDeviceAllocator::SegmentInfo segment_of(std::uint64_t address, std::uint64_t bytes,
                                                             const std::vector<CudaHooks::Held::Block>& blocks) {
    c10::CachingDeviceAllocator::SegmentInfo segment;
    segment.address = address;
    segment.total_size = bytes;
    segment.is_large = true;
    std::uint64_t at = address;
    const auto add = [&](std::uint64_t size, bool used) {
      if (size == 0) return;
      c10::CachingDeviceAllocator::BlockInfo block;
      block.size = block.requested_size = size;
      block.allocated = block.active = used;
      segment.blocks.push_back(std::move(block));
      at += size;
    };
    for (const CudaHooks::Held::Block& block : blocks) {
      add(block.address - at, false);
      add(block.bytes, true);
      segment.allocated_size += block.bytes;
    }
    add(address + bytes - at, false);
    segment.active_size = segment.requested_size = segment.allocated_size;
    return segment;
  }

  CudaHooks& hooks_;
};

// A thread of autograd's has no context before its first call of the runtime, and asking for a handle warns of that.
void make_workspaces(bool lt) {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) static_cast<void>(cudaSetDevice(device));
  static_cast<void>(at::cuda::getCurrentCUDABlasHandle());
  if (lt) static_cast<void>(at::cuda::getCUDABlasLtWorkspace());
}

std::uint64_t memory_of_device() {
  std::size_t free = 0, all = 0;
  return cudaMemGetInfo(&free, &all) == cudaSuccess ? all : 0;
}

CudaPart part{.memory_of_device = &memory_of_device, .make_workspaces = &make_workspaces};

// libtorch looks a handle's workspace up, and tells cuBLAS, each time that it takes the handle for a product.
void exchange(at::cuda::WorkspaceMapWithMutex& workspaces, std::size_t bytes,
              const std::function<bool(const c10::DataPtr&)>& ours) {
  std::vector<c10::DataPtr> gone;  // freed without the lock
  const std::unique_lock lock(workspaces.mutex);
  for (auto each = workspaces.map.begin(); each != workspaces.map.end();) {
    if (!ours(each->second)) {
      ++each;
      continue;
    }
    gone.push_back(std::move(each->second));
    try {
      each->second = part.native->allocate(bytes);
      ++each;
    } catch (const c10::Error&) {  // no memory
      each = workspaces.map.erase(each);
    }
  }
}

void exchange_workspaces(const std::function<bool(const c10::DataPtr&)>& ours) {
  exchange(at::cuda::cublas_handle_stream_to_workspace(), at::cuda::getChosenWorkspaceSize(), ours);
  exchange(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize(), ours);
}

}  // namespace
}  // namespace vedette::adapter

const vedette::adapter::CudaPart* vedette_cuda_install(vedette::adapter::CudaHooks* hooks) {
  using namespace vedette::adapter;
  // The allocator can be exchanged at any time: memory is freed by the deleter it was born with.
  caching::CUDAAllocator* const native = caching::get();
  auto* const facade = new Facade(native, *hooks);
  caching::allocator.store(facade);
  c10::SetAllocator(c10::kCUDA, facade, 1);
  part.native = native;
  part.exchange_workspaces = &exchange_workspaces;
  return &part;
}
