// CUDA's caching allocator behind one of ours: every call is passed on, unless a subclass overrides it. The list is
// that of libtorch 2.11; versions_cuda.h has what came later. Thread rule: as libtorch's own.
#pragma once
#include "adapter/torch/versions_cuda.h"

namespace vedette::adapter {

class CudaDelegate : public NewerCalls {
 public:
  using NewerCalls::NewerCalls;
  using Device = c10::DeviceIndex;
  using Pool = c10::MempoolId_t;

  c10::DataPtr allocate(std::size_t n) override { return native_->allocate(n); }
  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { native_->copy_data(to, from, n); }
  bool initialized() override { return native_->initialized(); }
  void emptyCache(Pool pool) override { native_->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(Device d) override { return native_->getDeviceStats(d); }
  void resetAccumulatedStats(Device d) override { native_->resetAccumulatedStats(d); }
  void resetPeakStats(Device d) override { native_->resetPeakStats(d); }
  void* raw_alloc(std::size_t n) override { return native_->raw_alloc(n); }
  void* raw_alloc_with_stream(std::size_t n, cudaStream_t s) override { return native_->raw_alloc_with_stream(n, s); }
  void raw_delete(void* p) override { native_->raw_delete(p); }
  void init(int devices) override { native_->init(devices); }
  double getMemoryFraction(Device d) override { return native_->getMemoryFraction(d); }
  void setMemoryFraction(double f, Device d) override { native_->setMemoryFraction(f, d); }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(Device d) override {
    return native_->getExpandableSegmentSizes(d);
  }
  void enable(bool on) override { native_->enable(on); }
  bool isEnabled() const override { return native_->isEnabled(); }
  void cacheInfo(Device d, std::size_t* largest) override { native_->cacheInfo(d, largest); }
  void* getBaseAllocation(void* p, std::size_t* n) override { return native_->getBaseAllocation(p, n); }
  using caching::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& p, c10::cuda::CUDAStream s) override { native_->recordStream(p, s); }
  caching::SnapshotInfo snapshot(Pool pool, bool traces) override { return native_->snapshot(pool, traces); }
  void beginAllocateToPool(Device d, Pool pool, std::function<bool(cudaStream_t)> filter) override {
    native_->beginAllocateToPool(d, pool, std::move(filter));
  }
  void endAllocateToPool(Device d, Pool pool) override { native_->endAllocateToPool(d, pool); }
  void releasePool(Device d, Pool pool) override { native_->releasePool(d, pool); }
  int getPoolUseCount(Device d, Pool pool) override { return native_->getPoolUseCount(d, pool); }
  void createOrIncrefPool(Device d, Pool pool, std::shared_ptr<CUDAAllocator> a) override {
    native_->createOrIncrefPool(d, pool, std::move(a));
  }
  void setUseOnOOM(Device d, Pool pool, bool use) override { native_->setUseOnOOM(d, pool, use); }
  void setNoSplit(Device d, Pool pool) override { native_->setNoSplit(d, pool); }
  bool checkPoolLiveAllocations(Device d, Pool pool, const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(d, pool, expected);
  }
  caching::ShareableHandle shareIpcHandle(void* p) override { return native_->shareIpcHandle(p); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return native_->isHistoryEnabled(); }
  void recordHistory(bool on, caching::CreateContextFn context, std::size_t entries, caching::RecordContext when,
                     bool clear, const std::vector<std::string>& skip) override {
    native_->recordHistory(on, context, entries, when, clear, skip);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& all) override {
    native_->recordAnnotation(all);
  }
  void pushCompileContext(std::string& text) override { native_->pushCompileContext(text); }
  void popCompileContext() override { native_->popCompileContext(); }
  void setUserMetadata(const std::string& text) override { native_->setUserMetadata(text); }
  std::string getUserMetadata() override { return native_->getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver o) override {
    native_->attachOutOfMemoryObserver(std::move(o));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker t) override {
    native_->attachAllocatorTraceTracker(std::move(t));
  }
  void enablePeerAccess(Device from, Device to) override { native_->enablePeerAccess(from, to); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t n, cudaStream_t s,
                          bool peer) override {
    return native_->memcpyAsync(to, to_device, from, from_device, n, s, peer);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(Device d, Pool pool) override {
    return native_->getCheckpointState(d, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(Device d, std::shared_ptr<caching::AllocatorState> state) override {
    return native_->setCheckpointPoolState(d, std::move(state));
  }
  std::string name() override { return "vedette over " + native_->name(); }
};

}  // namespace vedette::adapter
