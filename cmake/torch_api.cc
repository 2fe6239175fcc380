// What the adapter asks of libtorch, which CMake compiles where it meets a version of libtorch that was never tried:
// the words of each assertion that fails are in CMake's sentence (FindVedetteTorch.cmake).
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "adapter/torch/versions.h"
#ifdef VEDETTE_CUDA_PART
#include "adapter/torch/cuda_delegate.h"
vedette::adapter::CudaDelegate passes_every_call_on(nullptr);
#endif

template <class Storage>
constexpr bool follows = requires(Storage& storage, c10::DataPtr memory) {
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_data_ptr(std::move(memory));
};
static_assert(follows<c10::StorageImpl>, "needs c10::StorageImpl::set_data_ptr and set_data_ptr_noswap");
template <class Storage>
constexpr bool counts = requires(Storage& storage) {
  c10::weak_intrusive_ptr<Storage>(c10::intrusive_ptr<Storage>::reclaim_copy(&storage)).lock();
};
static_assert(counts<c10::StorageImpl>, "needs c10::intrusive_ptr::reclaim_copy and c10::weak_intrusive_ptr::lock");
template <class Function>
constexpr bool announces = requires(const Function& function) {
  function.inputs();
  function.outputs();
  function.operator_name();
  function.seqNr();
};
static_assert(announces<at::RecordFunction>, "needs at::RecordFunction::inputs, outputs, operator_name and seqNr");
template <class Callback>
constexpr bool listens = requires(Callback& callback) {
  callback.needsInputs(true).needsOutputs(true).scopes({});
};
static_assert(listens<at::RecordFunctionCallback>, "needs at::RecordFunctionCallback with inputs and outputs");
template <class Allocator>
constexpr bool allocates = requires(Allocator& allocator, const c10::DataPtr& memory, void* to) {
  { allocator.allocate(std::size_t{1}) } -> std::same_as<c10::DataPtr>;
  { allocator.raw_deleter() } -> std::same_as<c10::DeleterFnPtr>;
  allocator.copy_data(to, memory.get(), std::size_t{1});
};
static_assert(allocates<c10::Allocator>, "needs c10::Allocator::allocate, raw_deleter and copy_data");
int main() {}
