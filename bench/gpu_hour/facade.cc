// See facade.h.
#include "gpu_hour/facade.h"

#include <ATen/core/function_schema.h>
#include <c10/cuda/CUDAStream.h>

#include <unordered_map>

namespace vedette::gpu {
namespace {

std::atomic<Executor*> active{nullptr};  // relaxed: it changes while no op runs
std::atomic<std::uint64_t> ops{0};       // relaxed: a count

// What the ops that are open in this thread have pinned.
thread_local std::vector<Block*> pinned;
thread_local int open_ops = 0;

class Facade final : public caching::CUDAAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    Executor* const executor = active.load(std::memory_order_relaxed);
    if (executor == nullptr || bytes < executor->options().least_bytes) return native_->allocate(bytes);
    if (c10::cuda::getCurrentCUDAStream().stream() != executor->options().stream)
      throw Refused("an allocation on another stream");
    Block* const block = executor->allocate(bytes, open_ops > 0);
    if (open_ops > 0) pinned.push_back(block);
    return {block->at, block, &Executor::free, c10::Device(c10::kCUDA, 0)};
  }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    if (data.get_deleter() != &Executor::free) native_->recordStream(data, stream);  // ours know one stream
  }

  c10::DeleterFnPtr raw_deleter() const override { return native_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { native_->copy_data(to, from, n); }
  bool initialized() override { return native_->initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { native_->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex d) override {
    return native_->getDeviceStats(d);
  }
  void resetAccumulatedStats(c10::DeviceIndex d) override { native_->resetAccumulatedStats(d); }
  void resetPeakStats(c10::DeviceIndex d) override { native_->resetPeakStats(d); }
  void* raw_alloc(std::size_t n) override { return native_->raw_alloc(n); }
  void* raw_alloc_with_stream(std::size_t n, cudaStream_t s) override { return native_->raw_alloc_with_stream(n, s); }
  void raw_delete(void* memory) override { native_->raw_delete(memory); }
  void init(int devices) override { native_->init(devices); }
  double getMemoryFraction(c10::DeviceIndex d) override { return native_->getMemoryFraction(d); }
  void setMemoryFraction(double share, c10::DeviceIndex d) override { native_->setMemoryFraction(share, d); }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex d) override {
    return native_->getExpandableSegmentSizes(d);
  }
  void enable(bool on) override { native_->enable(on); }
  bool isEnabled() const override { return native_->isEnabled(); }
  void cacheInfo(c10::DeviceIndex d, std::size_t* n) override { native_->cacheInfo(d, n); }
  void* getBaseAllocation(void* memory, std::size_t* n) override { return native_->getBaseAllocation(memory, n); }
  caching::SnapshotInfo snapshot(c10::MempoolId_t pool, bool traces) override {
    return native_->snapshot(pool, traces);
  }
  void beginAllocateToPool(c10::DeviceIndex d, c10::MempoolId_t pool, std::function<bool(cudaStream_t)> to) override {
    native_->beginAllocateToPool(d, pool, std::move(to));
  }
  void endAllocateToPool(c10::DeviceIndex d, c10::MempoolId_t pool) override { native_->endAllocateToPool(d, pool); }
  void releasePool(c10::DeviceIndex d, c10::MempoolId_t pool) override { native_->releasePool(d, pool); }
  caching::ShareableHandle shareIpcHandle(void* memory) override { return native_->shareIpcHandle(memory); }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return native_->getIpcDevPtr(std::move(handle)); }
  void recordHistory(bool on, caching::CreateContextFn create, std::size_t entries, caching::RecordContext when,
                     bool clear, const std::vector<std::string>& skip) override {
    native_->recordHistory(on, create, entries, when, clear, skip);
  }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    native_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) override { native_->enablePeerAccess(from, to); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, std::size_t n, cudaStream_t s,
                          bool peers) override {
    return native_->memcpyAsync(to, to_device, from, from_device, n, s, peers);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex d, c10::MempoolId_t pool) override {
    return native_->getCheckpointState(d, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex d,
                                                  std::shared_ptr<caching::AllocatorState> state) override {
    return native_->setCheckpointPoolState(d, std::move(state));
  }
  std::string name() override { return "vedette's hour over " + native_->name(); }

 private:
  CUDAAllocator* const native_ = caching::get();
};

Block* block_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &Executor::free ? static_cast<Block*>(data.get_context()) : nullptr;
}

template <class Action>
void each_tensor(const c10::IValue& value, const Action& action) {
  if (value.isTensor()) {
    action(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) action(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) action(*tensor);
    }
  }
}

struct OpenOp final : at::ObserverContext {
  explicit OpenOp(std::size_t from) : pinned_from(from) {}
  std::size_t pinned_from;
};

// Bit i: argument i may be written. Asked for once an overload, whose name has one address; what has no schema may
// write all.
std::uint64_t written_arguments(const at::RecordFunction& function) {
  thread_local std::unordered_map<const char*, std::uint64_t> known;
  const auto [entry, missing] = known.try_emplace(function.name(), ~std::uint64_t{0});
  if (!missing) return entry->second;
  const auto schema = function.operator_schema();
  if (!schema) return entry->second;
  for (std::size_t i = 0; i < std::min<std::size_t>(schema->arguments().size(), 64); ++i) {
    const auto* const alias = schema->arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) entry->second &= ~(std::uint64_t{1} << i);
  }
  return entry->second;
}

void announce_operands(const at::RecordFunction& function, Executor& executor) {
  thread_local std::vector<Operand> operands;
  operands.clear();
  const std::uint64_t written = written_arguments(function);
  std::size_t argument = 0;
  for (const c10::IValue& value : function.inputs()) {
    const bool writes = argument >= 64 || (written >> argument & 1) != 0;
    each_tensor(value, [&](const at::Tensor& tensor) {
      Block* const block = block_of(tensor);
      if (block == nullptr || block->owner != &executor) return;
      operands.push_back({block, tensor.storage().unsafeGetStorageImpl(), writes});
    });
    ++argument;
  }
  executor.operands(operands);
  for (const Operand& each : operands) pinned.push_back(each.block);
}

std::unique_ptr<at::ObserverContext> begin_counted(const at::RecordFunction&) {
  ops.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& function) {
  ops.fetch_add(1, std::memory_order_relaxed);
  auto open = std::make_unique<OpenOp>(pinned.size());
  ++open_ops;
  if (Executor* const executor = active.load(std::memory_order_relaxed)) {
    executor->begin_op();
    announce_operands(function, *executor);
  } else {
    for (const c10::IValue& value : function.inputs()) {
      each_tensor(value, [](const at::Tensor& tensor) { block_of(tensor); });
    }
  }
  return open;
}

void end_op(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  for (const c10::IValue& value : function.outputs()) {
    each_tensor(value, [](const at::Tensor& tensor) {
      Block* const block = block_of(tensor);
      if (block != nullptr && block->owner != nullptr)
        block->owner->seen(block, tensor.storage().unsafeGetStorageImpl());
    });
  }
  --open_ops;
  for (const std::size_t from = static_cast<OpenOp*>(context)->pinned_from; pinned.size() > from; pinned.pop_back())
    pinned.back()->owner->unpin(pinned.back());
}

}  // namespace

Announcements::Announcements(Announced what, Executor* executor) {
  active.store(executor, std::memory_order_relaxed);
  if (what == Announced::nothing) return;
  const bool inputs = what != Announced::begin, outputs = what == Announced::inputs_and_outputs;
  auto callback = inputs ? at::RecordFunctionCallback(begin_op, end_op) : at::RecordFunctionCallback(begin_counted);
  handle_ =
      at::addGlobalCallback(callback.needsInputs(inputs).needsOutputs(outputs).scopes({at::RecordScope::FUNCTION}));
}

Announcements::~Announcements() {
  if (handle_ != 0) at::removeCallback(handle_);
  active.store(nullptr, std::memory_order_relaxed);
}

std::uint64_t announced_ops() { return ops.load(std::memory_order_relaxed); }

void install_facade() {
  static Facade* const facade = [] {
    auto* const made = new Facade;  // for ever: libtorch frees through it after main() has ended
    caching::allocator.store(made);
    c10::SetAllocator(c10::kCUDA, made, 1);
    return made;
  }();
  static_cast<void>(facade);
}

}  // namespace vedette::gpu
