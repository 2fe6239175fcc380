// The facade: see cuda_facade.h.
#include "adapter/torch/cuda_facade.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "adapter/torch/cuda_delegate.h"
#include "adapter/torch/versions_cuda.h"

namespace vedette::adapter {
namespace {

// Where each product has a workspace of its own, it gets one of these while a guard lives: libtorch's own memory, kept
// as libtorch keeps workspaces elsewhere, as many as are in use at once. The products of one stream run one after the
// other, so that the next one may have it before the last one has run.
class KeptWorkspaces {
 public:
  c10::DataPtr lend(caching::CUDAAllocator& native, std::size_t bytes) {  // throws c10::Error where there is no memory
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
      return !each->lent && each->bytes == bytes && each->stream == stream;
    });
    if (found == all_.end()) {
      all_.push_back(std::make_unique<One>(One{native.allocate(bytes), bytes, stream}));
      found = all_.end() - 1;
    }
    One& one = **found;
    one.lent = true;
    return {one.memory.get(), &one, &give_back, stream.device()};
  }
  void let_go() {
    std::vector<std::unique_ptr<One>> gone;  // freed without the lock
    const std::lock_guard lock(mutex_);
    const auto first = std::partition(all_.begin(), all_.end(), [](const auto& each) { return each->lent; });
    std::move(first, all_.end(), std::back_inserter(gone));
    all_.erase(first, all_.end());
  }
  static KeptWorkspaces& instance() {
    static auto* const immortal = new KeptWorkspaces;  // a workspace may outlive static objects
    return *immortal;
  }

 private:
  struct One {
    c10::DataPtr memory;
    std::size_t bytes;
    c10::cuda::CUDAStream stream;
    bool lent = false;
  };
  static void give_back(void* one) {
    const std::lock_guard lock(instance().mutex_);
    static_cast<One*>(one)->lent = false;
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<One>> all_;
};

class Facade final : public CudaDelegate {
 public:
  Facade(caching::CUDAAllocator* native, CudaHooks& hooks) : CudaDelegate(native), hooks_(hooks) {}
  [[gnu::noinline]] c10::DataPtr allocate(std::size_t bytes) override {
    if (products_.has(__builtin_return_address(0)) && hooks_.active()) {
      try {
        return KeptWorkspaces::instance().lend(*native_, bytes);
      } catch (const c10::Error&) {  // no memory beside the budget: of the budget then, while the op runs
      }
    }
    c10::DataPtr memory = hooks_.allocate(bytes);
    if (memory.get_context() == nullptr) return native_->allocate(bytes);
    return memory;
  }
  // A pointer of allocate() cannot be freed by this alone, while a guard lives.
  c10::DeleterFnPtr raw_deleter() const override { return hooks_.held(false) ? nullptr : native_->raw_deleter(); }
  // The largest piece that an allocation gets without a move.
  void cacheInfo(Device device, std::size_t* largest) override {
    const auto held = device == hooks_.number() ? hooks_.held(true) : std::nullopt;
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
    const auto held = device == hooks_.number() ? hooks_.held(false) : std::nullopt;
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
  const Code products_ = code_that_allocates_workspaces();
};

// A thread of autograd's has no context before its first call of the runtime, and asking for a handle warns of that.
caching::CUDAAllocator* native = nullptr;  // libtorch's own, for ever

void make_workspaces(bool lt) {
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) static_cast<void>(cudaSetDevice(device));
  static_cast<void>(at::cuda::getCurrentCUDABlasHandle());
  if (!workspace_of_each_product()) {
    if (lt) static_cast<void>(at::cuda::getCUDABlasLtWorkspace());
    return;
  }
  auto& kept = KeptWorkspaces::instance();
  static_cast<void>(kept.lend(*native, at::cuda::getChosenWorkspaceSize()));
  if (lt) static_cast<void>(kept.lend(*native, at::cuda::getCUDABlasLtWorkspaceSize()));
}

std::uint64_t memory_of_device() {
  std::size_t free = 0, all = 0;
  return cudaMemGetInfo(&free, &all) == cudaSuccess ? all : 0;
}

// libtorch looks a handle's workspace up, and tells cuBLAS, each time that it takes the handle for a product.
void exchange(at::cuda::WorkspaceMapWithMutex& workspaces, std::size_t bytes,
              const std::function<bool(const c10::DataPtr&)>& ours) {
  std::vector<c10::DataPtr> gone;  // freed without the lock
  const std::unique_lock lock(workspaces.mutex);
  for (auto each = workspaces.map.begin(); each != workspaces.map.end();) {
    c10::DataPtr& workspace = workspace_in(each->second);
    if (!ours(workspace)) {
      ++each;
      continue;
    }
    gone.push_back(std::move(workspace));
    try {
      workspace = native->allocate(bytes_in(each->second, bytes));
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

void let_workspaces_go() { KeptWorkspaces::instance().let_go(); }

}  // namespace
}  // namespace vedette::adapter

const vedette::adapter::CudaPart* vedette_cuda_install(vedette::adapter::CudaHooks* hooks) {
  using namespace vedette::adapter;
  // The allocator can be exchanged at any time: memory is freed by the deleter it was born with.
  native = caching::get();
  auto* const facade = new Facade(native, *hooks);
  caching::allocator.store(facade);
  c10::SetAllocator(c10::kCUDA, facade, 1);
  static const CudaPart part{.native = native,
                             .memory_of_device = &memory_of_device,
                             .make_workspaces = &make_workspaces,
                             .exchange_workspaces = &exchange_workspaces,
                             .let_workspaces_go = &let_workspaces_go};
  return &part;
}
