// The facade, the storages' pointers and the operators' announcements: see cuda_places.h.
#include "adapter/torch/cuda_places.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <mutex>

#include "adapter/torch/cuda_delegate.h"
#include "base/assert.h"
#include "engine/place_executor.h"

namespace vedette::adapter {
namespace {

using BlockIndex = PlaceExecutor::BlockIndex;

cuda::StreamHandle current_stream() {
  return reinterpret_cast<cuda::StreamHandle>(c10::cuda::getCurrentCUDAStream().stream());
}

// What a storage's DataPtr holds.
struct Handle {
  BlockIndex block;
  c10::StorageImpl* storage = nullptr;  // of the last operator that was seen with it
};

class Places final : public PlaceExecutor::Pointers {
 public:
  static Result<void> open(Bytes budget);
  static Places& get() { return *instance(); }
  static bool is_ours(const c10::DataPtr& pointer) { return pointer.get_deleter() == &free; }

  c10::DataPtr allocate(std::size_t bytes) {
    const auto born = executor_->allocate({bytes}, current_stream());
    if (!born) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory: ", born.error().message);
    auto* const handle = new Handle{.block = born->block};
    {
      const std::lock_guard lock(guard_);
      if (handles_.size() <= born->block.value) handles_.resize(born->block.value + 1);
      handles_[born->block.value] = handle;
    }
    return pointer_to(born->address, handle);
  }
  void moved(BlockIndex block, cuda::Address address) noexcept override {
    const std::lock_guard lock(guard_);
    Handle* const handle = handles_[block.value];
    c10::DataPtr old = handle->storage->set_data_ptr(pointer_to(address, handle));
    static_cast<void>(old.release_context());
  }
  void seen(Handle& handle, c10::StorageImpl* storage) {
    {
      const std::lock_guard lock(guard_);
      if (std::exchange(handle.storage, storage) != nullptr) return;
    }
    executor_->allow_moves(handle.block);
  }
  PlaceExecutor& executor() { return *executor_; }

 private:
  static Places*& instance() {
    static Places* places = nullptr;
    return places;
  }
  static c10::DataPtr pointer_to(cuda::Address address, Handle* handle) {
    return {reinterpret_cast<void*>(address), handle, &free, c10::Device(c10::kCUDA, 0)};
  }
  static void free(void* context) {
    auto* const handle = static_cast<Handle*>(context);
    get().executor_->release(handle->block);
    delete handle;
  }

  std::unique_ptr<PlaceExecutor> executor_;
  std::mutex guard_;  // inside the executor's
  std::vector<Handle*> handles_;
};

class Facade final : public CudaDelegate {
 public:
  Facade(caching::CUDAAllocator* native, std::size_t small) : CudaDelegate(native), small_(small) {}
  c10::DataPtr allocate(std::size_t bytes) override {
    return bytes < small_ ? native_->allocate(bytes) : Places::get().allocate(bytes);
  }
  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (!Places::is_ours(pointer)) return native_->recordStream(pointer, stream);
    const auto* const handle = static_cast<const Handle*>(pointer.get_context());
    Places::get().executor().record_stream(handle->block, reinterpret_cast<cuda::StreamHandle>(stream.stream()));
  }

 private:
  const std::size_t small_;
};

struct Operation final : at::ObserverContext {
  std::vector<BlockIndex> blocks;
  cuda::StreamHandle stream = nullptr;
};

template <class Action>  // Action: void(Handle&, c10::StorageImpl*)
void each_block(const at::Tensor& tensor, const Action& action) {
  if (!tensor.defined() || !tensor.is_cuda() || !tensor.has_storage()) return;
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  const c10::DataPtr& pointer = storage->data_ptr();
  if (Places::is_ours(pointer)) action(*static_cast<Handle*>(pointer.get_context()), storage);
}

template <class Values, class Action>
void each_block_of(const Values& values, const Action& action) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      each_block(value.toTensor(), action);
    } else if (value.isTensorList()) {
      for (const at::Tensor& each : value.toTensorVector()) each_block(each, action);
    } else if (value.isOptionalTensorList()) {
      for (const auto& each : value.toOptionalTensorVector()) {
        if (each) each_block(*each, action);
      }
    }
  }
}

std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& function) {
  auto operation = std::make_unique<Operation>();
  each_block_of(function.inputs(), [&](Handle& handle, c10::StorageImpl* storage) {
    Places::get().seen(handle, storage);
    auto& blocks = operation->blocks;
    if (std::find(blocks.begin(), blocks.end(), handle.block) == blocks.end()) blocks.push_back(handle.block);
  });
  if (operation->blocks.empty()) return operation;
  operation->stream = current_stream();
  // libtorch swallows what a callback throws, and would launch the operator on null pointers.
  const auto begun = Places::get().executor().begin_op(operation->blocks, operation->stream);
  if (!begun) die((std::string(function.name()) + ": " + begun.error().message).c_str());
  return operation;
}

void end_op(const at::RecordFunction& function, at::ObserverContext* context) {
  each_block_of(function.outputs(),
                [&](Handle& handle, c10::StorageImpl* storage) { Places::get().seen(handle, storage); });
  const auto& operation = static_cast<const Operation&>(*context);
  if (!operation.blocks.empty()) Places::get().executor().end_op(operation.blocks, operation.stream);
}

Result<void> Places::open(Bytes budget) {
  auto driver = cuda::Driver::load();
  if (!driver) return driver.error();
  auto device = cuda::Device::open(*driver, 0);
  if (!device) return device.error();
  auto* const places = new Places;  // storages point to it until the process ends
  auto executor = PlaceExecutor::make(*device, {.budget = budget}, *places);
  if (!executor) return executor.error();
  places->executor_ = std::move(*executor);
  instance() = places;
  return {};
}

}  // namespace
}  // namespace vedette::adapter

const char* vedette_gpu_open(std::uint64_t budget, std::uint64_t small) {
  using namespace vedette::adapter;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  if (const auto opened = Places::open({budget}); !opened) return (new std::string(opened.error().message))->c_str();
  // The allocator can be exchanged at any time: memory is freed by the deleter it was born with.
  auto* const facade = new Facade(caching::get(), small);
  caching::allocator.store(facade);
  c10::SetAllocator(c10::kCUDA, facade, 1);
  at::addGlobalCallback(at::RecordFunctionCallback(&begin_op, &end_op)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  return nullptr;
}

VedetteGpuCounters vedette_gpu_counters() {
  const auto counters = vedette::adapter::Places::get().executor().counters();
  return {.evictions = counters.evictions,
          .fetches = counters.fetches,
          .evicted_bytes = counters.evicted.value,
          .fetched_bytes = counters.fetched.value,
          .most_live_bytes = counters.most_live.value,
          .most_in_use_bytes = counters.most_in_use.value};
}
