// The facade: see cuda_facade.h.
#include "adapter/torch/cuda_facade.h"

#include "adapter/torch/cuda_delegate.h"

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
  void recordStream(const c10::DataPtr& memory, c10::cuda::CUDAStream stream) override {
    if (!hooks_.record_stream(memory, stream.stream())) native_->recordStream(memory, stream);
  }

 private:
  CudaHooks& hooks_;
};

}  // namespace
}  // namespace vedette::adapter

c10::Allocator* vedette_cuda_install(vedette::adapter::CudaHooks* hooks) {
  using namespace vedette::adapter;
  // The allocator can be exchanged at any time: memory is freed by the deleter it was born with.
  caching::CUDAAllocator* const native = caching::get();
  auto* const facade = new Facade(native, *hooks);
  caching::allocator.store(facade);
  c10::SetAllocator(c10::kCUDA, facade, 1);
  return native;
}
