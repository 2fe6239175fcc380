// The questions: see behaviour.h.
#include "adapter/torch/behaviour.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/neg.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "adapter/torch/allocator.h"
#include "adapter/torch/versions.h"

namespace vedette::adapter {
namespace {

constexpr std::int64_t count = 16;
constexpr std::size_t bytes_of_all = count * sizeof(float);

template <class Structure>
const Structure& beside(const Structure& structure, std::ptrdiff_t bytes) {
  return *reinterpret_cast<const Structure*>(reinterpret_cast<const char*>(&structure) + bytes);
}

struct Asking {
  const Libtorch& libtorch;
  const c10::TensorImpl* operand = nullptr;
  bool named = false, had_input = false, had_output = false;
};
thread_local Asking* asking_here = nullptr;

bool is_tensor(const c10::IValue& value, const Libtorch& libtorch, const c10::TensorImpl* wanted) {
  const c10::IValue& read = beside(value, libtorch.beside.value);
  return read.isTensor() && (wanted == nullptr || read.unsafeToTensorImpl() == wanted);
}

// Exceptions of a callback end in libtorch's log: what was not reached is not as it was.
std::unique_ptr<at::ObserverContext> begin_op(const at::RecordFunction& function) {
  Asking& asking = *asking_here;
  const at::RecordFunction& read = beside(function, asking.libtorch.beside.operator_call);
  const auto inputs = read.inputs();
  if (inputs.size() != 1 || !is_tensor(inputs[0], asking.libtorch, asking.operand)) return nullptr;
  asking.had_input = true;
  const auto name = read.operator_name();
  asking.named = name && name->name == "aten::neg";
  return nullptr;
}

void end_op(const at::RecordFunction& function, at::ObserverContext*) {
  Asking& asking = *asking_here;
  const std::vector<c10::IValue>& outputs = beside(function, asking.libtorch.beside.operator_call).outputs();
  asking.had_output = outputs.size() == 1 && is_tensor(outputs[0], asking.libtorch, nullptr);
}

// It ends before `asking` does.
class Listening {
 public:
  explicit Listening(Asking& asking) {
    asking_here = &asking;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin_op, &end_op)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Listening() {
    at::removeCallback(handle_);
    asking_here = nullptr;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  const at::RecordFunctionGuard on_{true};
  at::CallbackHandle handle_ = 0;
};

bool comes_to_us(const c10::DataPtr& memory, const Libtorch& libtorch) {
  const c10::DataPtr& read = beside(memory, libtorch.beside.data_ptr);
  return read.get() != nullptr && read.get() == memory.get() && read.get_context() == read.get() &&
         read.get_deleter() == &release_memory && read.device() == c10::Device(c10::kCPU);
}

bool follows(const at::Tensor& tensor, const Libtorch& libtorch) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const c10::StorageImpl& read = beside(storage, libtorch.beside.storage);
  const c10::TensorImpl& impl = beside(*tensor.unsafeGetTensorImpl(), libtorch.beside.tensor);
  if (read.nbytes() != bytes_of_all || read.data() != storage.data()) return false;
  if (impl.unsafe_storage().unsafeGetStorageImpl() != &storage || impl.storage_offset() != 0) return false;
  if (impl.sizes().size() != 1 || impl.numel() != count || impl.dtype() != caffe2::TypeMeta::Make<float>())
    return false;
  if (impl.sizes()[0] != count || impl.strides()[0] != 1) return false;

  c10::DataPtr memory = ordinary_memory(bytes_of_all);
  const void* const address = memory.get();
  std::fill_n(static_cast<float*>(memory.get()), count, 3.0F);
  const c10::weak_intrusive_ptr<c10::StorageImpl> weak(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
  if (weak.use_count() != 1 || weak.lock().get() != &storage) return false;
  libtorch.exchange(storage, std::move(memory));
  return read.data() == address && tensor.const_data_ptr() == address;
}

std::optional<std::string> differs(const Libtorch& libtorch) {
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);  // which the program may have
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor tensor = libtorch.make(count);
  if (!comes_to_us(tensor.storage().data_ptr(), libtorch))
    return "an allocation of CPU memory does not come to vedette";
  if (!follows(tensor, libtorch)) return "a tensor's storage does not follow its new pointer";
  Asking asking{.libtorch = libtorch, .operand = tensor.unsafeGetTensorImpl()};
  at::Tensor result;
  {
    const Listening listening(asking);
    result = libtorch.negate(tensor);
  }
  if (!asking.had_input || !asking.named) return "an operator does not announce its inputs";
  if (!asking.had_output) return "an operator does not announce its results";
  if (result.const_data_ptr<float>()[count - 1] != -3.0F)
    return "an operator does not read where its operand's storage points";
  return std::nullopt;
}

}  // namespace

Libtorch libtorch_as_it_is() {
  return {.make =
              [](std::int64_t floats) {
                return at::Tensor(at::detail::empty_cpu({floats}, at::TensorOptions(at::kFloat)));
              },
          .exchange = [](c10::StorageImpl& storage,
                         c10::DataPtr memory) { storage.set_data_ptr_noswap(std::move(memory)); },
          .negate = [](const at::Tensor& tensor) { return at::neg(tensor); }};
}

std::optional<std::string> what_differs(const Libtorch& libtorch) {
  install_allocator();
  try {
    return differs(libtorch);
  } catch (const std::exception& error) {
    return std::string("a structure of libtorch's is not laid out as its headers say (") + error.what() + ")";
  }
}

std::string never_tried(int minor, const std::string& version) {
  if (minor <= newest_tried) return {};
  return "libtorch " + version + " was never tried with vedette; what a guard stands on is as it was in 2." +
         std::to_string(newest_tried);
}

}  // namespace vedette::adapter
