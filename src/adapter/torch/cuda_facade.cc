// The facade: see cuda_facade.h.
#include "adapter/torch/cuda_facade.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

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
  std::uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& each : all_) sum += each->bytes;
    return sum;
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

using Pool = c10::MempoolId_t;

// Pools into which threads allocate now: those of graphs while they are captured, and MemPools.
class Pools {
 public:
  void begin(Pool pool, const std::function<bool(cudaStream_t)>& takes) {
    const std::lock_guard lock(mutex_);
    begun_.push_back({pool, takes});
    any_.store(true, std::memory_order_relaxed);
  }
  void end(Pool pool) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(begun_.begin(), begun_.end(), [&](const One& each) { return each.pool == pool; });
    if (found != begun_.end()) begun_.erase(found);
    any_.store(!begun_.empty(), std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }  // relaxed: each thread asks of its own pools
  std::optional<Pool> of(cudaStream_t stream) {
    if (!any()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    for (const One& each : begun_)
      if (each.takes(stream)) return each.pool;
    return std::nullopt;
  }
  // Of a graph, whose pool takes what captured streams allocate, and nothing of `other`, as a MemPool's does.
  std::optional<Pool> of_capture(cudaStream_t stream, cudaStream_t other) {
    const std::lock_guard lock(mutex_);
    for (const One& each : begun_)
      if (each.takes(stream) && !each.takes(other)) return each.pool;
    return std::nullopt;
  }
  // The bytes of a pool, from which no thread allocates any more.
  void holds(Pool pool, std::uint64_t bytes) {  // 0: it is gone
    const std::lock_guard lock(mutex_);
    if (bytes > 0)
      bytes_[pool] = bytes;
    else
      bytes_.erase(pool);
  }
  std::uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    std::uint64_t sum = 0;
    for (const auto& [pool, each] : bytes_) sum += each;
    return sum;
  }
  static Pools& instance() {
    static auto* const immortal = new Pools;
    return *immortal;
  }

 private:
  struct One {
    Pool pool;
    std::function<bool(cudaStream_t)> takes;
  };
  std::mutex mutex_;
  std::vector<One> begun_;
  std::map<Pool, std::uint64_t> bytes_;
  std::atomic<bool> any_{false};
};

std::uint64_t bytes_of_pool(Pool pool);

class Facade final : public CudaDelegate {
 public:
  Facade(caching::CUDAAllocator* native, CudaHooks& hooks) : CudaDelegate(native), hooks_(hooks) {}
  [[gnu::noinline]] c10::DataPtr allocate(std::size_t bytes) override {
    if (Pools::instance().any() && Pools::instance().of(c10::cuda::getCurrentCUDAStream()))
      return native_->allocate(bytes);
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
    if (!hooks_.record_stream(memory, stream.stream())) native_->recordStream(hooks_.libtorchs(memory), stream);
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
    if (device == hooks_.number()) {
      hooks_.pool_begins();
      Pools::instance().begin(pool, filter);
    }
    native_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(Device device, Pool pool) override {
    native_->endAllocateToPool(device, pool);
    if (device != hooks_.number()) return;
    Pools::instance().end(pool);
    Pools::instance().holds(pool, bytes_of_pool(pool));
    hooks_.pool_ends(pool);
  }
  void releasePool(Device device, Pool pool) override {
    const bool last = device == hooks_.number() && native_->getPoolUseCount(device, pool) <= 1;
    native_->releasePool(device, pool);
    if (last) Pools::instance().holds(pool, 0);
    if (last) hooks_.pool_died(pool);
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
  if (Pools::instance().of(c10::cuda::getCurrentCUDAStream())) return;  // one that is kept would keep the pool
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) static_cast<void>(cudaSetDevice(device));
  static_cast<void>(at::cuda::getCurrentCUDABlasHandle());
  if (!workspace_of_each_product()) {
    if (lt) static_cast<void>(at::cuda::getCUDABlasLtWorkspace());
    return;
  }
  auto& kept = KeptWorkspaces::instance();
  static_cast<void>(kept.lend(*native, cublas_workspace_bytes()));
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
  exchange(at::cuda::cublas_handle_stream_to_workspace(), cublas_workspace_bytes(), ours);
  exchange(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize(), ours);
}

void let_workspaces_go() { KeptWorkspaces::instance().let_go(); }

void* beside_captures() {
  static std::mutex mutex;
  static auto* const streams = new std::map<c10::DeviceIndex, cudaStream_t>;
  const c10::DeviceIndex device = c10::cuda::current_device();
  const std::lock_guard lock(mutex);
  cudaStream_t& stream = (*streams)[device];
  if (stream == nullptr) {
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  return stream;
}

std::optional<Pool> capture_here() {
  if (!Pools::instance().any()) return std::nullopt;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess || status == cudaStreamCaptureStatusNone)
    return std::nullopt;
  return Pools::instance().of_capture(stream, static_cast<cudaStream_t>(beside_captures()));
}

void run_beside_captures(const std::function<void()>& work) {
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  const c10::cuda::CUDAStreamGuard on(
      c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(beside_captures()), c10::cuda::current_device()));
  work();
}

void wait_beside_captures() {
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  C10_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(beside_captures())));
}

bool wait_for_device() {
  if (Pools::instance().any()) return false;
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  return true;
}

// Allocators other than libtorch's own, as cudaMallocAsync's, have no segments and answer with an error.
std::vector<c10::CachingDeviceAllocator::SegmentInfo> segments_of(Pool pool) {
  try {
    return native->snapshot(pool, false).segments;
  } catch (const c10::Error&) {
    return {};
  }
}

std::uint64_t bytes_of_pool(Pool pool) {
  std::uint64_t bytes = 0;
  for (const auto& segment : segments_of(pool)) bytes += segment.total_size;
  return bytes;
}

CudaPart::Reserved reserved(int device) {
  const auto of_map = [](at::cuda::WorkspaceMapWithMutex& workspaces, std::size_t bytes) {
    const std::shared_lock lock(workspaces.mutex);
    std::uint64_t sum = 0;
    for (const auto& [stream, entry] : workspaces.map) sum += bytes_in(entry, bytes);
    return sum;
  };
  const auto all_of = [](c10::DeviceIndex number) -> std::uint64_t {
    constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    try {
      return static_cast<std::uint64_t>(native->getDeviceStats(number).reserved_bytes[all].current);
    } catch (const c10::Error&) {  // an allocator of the program's own counts nothing
      return 0;
    }
  };
  return {
      .all = all_of(static_cast<c10::DeviceIndex>(device)),
      .pools = Pools::instance().bytes(),
      .workspaces = of_map(at::cuda::cublas_handle_stream_to_workspace(), cublas_workspace_bytes()) +
                    of_map(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize()) +
                    KeptWorkspaces::instance().bytes()};
}

bool has_graphs() {
  const c10::DeviceIndex device = c10::cuda::current_device();
  const auto segments = segments_of({0, 0});
  return std::any_of(segments.begin(), segments.end(), [&](const auto& segment) {
    const Pool pool = segment.owner_private_pool_id;
    return pool != Pool{0, 0} && segment.device == device && native->getPoolUseCount(device, pool) > 0;
  });
}

bool pool_here() { return Pools::instance().of(c10::cuda::getCurrentCUDAStream()).has_value(); }

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
                             .let_workspaces_go = &let_workspaces_go,
                             .capture_here = &capture_here,
                             .beside_captures = &beside_captures,
                             .run_beside_captures = &run_beside_captures,
                             .wait_beside_captures = &wait_beside_captures,
                             .wait_for_device = &wait_for_device,
                             .bytes_of_pool = &bytes_of_pool,
                             .has_graphs = &has_graphs,
                             .pool_here = &pool_here,
                             .begin_late_fill = &begin_late_fill,
                             .end_late_fill = &end_late_fill,
                             .reserved = &reserved};
  return &part;
}
