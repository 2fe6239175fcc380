// The door from Python to marks of exports, and to the references by which Python knows who has a tensor: see
// vedette/_exports.py.
//
// Invariant: functions that count references add none of their own. Thread rule: Python's lock is held.
#include "exports.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/left_out.h"
#include "adapter/torch/taken_apart.h"
#include "vedette/torch.h"

namespace py = pybind11;

namespace vedette::python {
namespace {

// A tensor of Python's without a reference more to it, of which Python counts them.
const at::Tensor& unpacked(const py::handle& tensor) {
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("a torch.Tensor is wanted");
  return THPVariable_Unpack(tensor.ptr());
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {  // of a wrapper, too, whose storage() throws
  return tensor.defined() && tensor.has_storage()
             ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()
             : nullptr;
}

// The tensors to which autograd holds a reference because of this one: the base of a view, a gradient, the tangent of a
// dual number.
std::vector<at::Tensor> held_by_autograd(const at::Tensor& tensor) {
  std::vector<at::Tensor> held;
  if (!tensor.defined()) return held;
  if (tensor.is_view()) held.push_back(at::Tensor(tensor._base()));
  if (tensor.is_leaf() && tensor.requires_grad() && tensor.grad().defined()) held.push_back(tensor.grad());
  if (tensor.unsafeGetTensorImpl()->autograd_meta() != nullptr && !adapter::in_transform())
    if (const at::Tensor& tangent = tensor._fw_grad(/*level=*/0); tangent.defined()) held.push_back(tangent);
  return held;
}

struct Export {
  std::optional<adapter::Export> held;
};

}  // namespace

// Storages are known by their addresses.
void bind_exports(py::module_& module) {
  using Address = std::uintptr_t;
  const auto address = [](const c10::StorageImpl* storage) { return reinterpret_cast<Address>(storage); };
  py::class_<Export>(module, "Export")
      .def(py::init([](const at::Tensor& tensor) {
        auto made = std::make_unique<Export>();
        const py::gil_scoped_release no_gil;  // what was made from it may have to be recomputed
        made->held.emplace(tensor);
        return made;
      }))
      .def("end", [](Export& one) { one.held.reset(); });
  module.def("mark_exported", static_cast<void (*)(const at::Tensor&)>(&mark_exported),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "keep_for_graph",
      [](const at::Tensor& tensor, c10::MempoolId_t pool) {
        if (tensor.is_cuda() && tensor.has_storage())
          adapter::keep_for_graph(*tensor.storage().unsafeGetStorageImpl(), pool);
      },
      py::call_guard<py::gil_scoped_release>());
  module.def("is_exported", [](const at::Tensor& tensor) {
    const c10::StorageImpl* const storage = storage_of(tensor);
    return storage != nullptr && adapter::is_exported(*storage);
  });
  module.def("use_count", [](const py::handle& tensor) { return unpacked(tensor).use_count(); });
  module.def("storage_of", [address](const py::handle& tensor) { return address(storage_of(unpacked(tensor))); });
  module.def("storage_use_count", [](Address storage) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return c10::raw::intrusive_ptr::use_count(reinterpret_cast<c10::StorageImpl*>(storage));
  });
  module.def("held_by_autograd", &held_by_autograd);
  using adapter::LeftOut;
  py::enum_<LeftOut::Why>(module, "Why")
      .value("shared", LeftOut::Why::shared)
      .value("exported", LeftOut::Why::exported);
  py::class_<LeftOut>(module, "LeftOut")
      .def(py::init<>())
      .def("add", [](LeftOut& left, LeftOut::Why why, const std::string& name,
                     std::uint64_t bytes) { left.add(why, name, {bytes}); })
      .def("sentences", [](LeftOut& left) {
        std::vector<std::string> sentences;
        left.say([&](std::string_view sentence) { sentences.emplace_back(sentence); });
        return sentences;
      });
  module.def("set_judge", [address](py::function judge) {
    // Lives as long as the interpreter, as its functions do.
    adapter::set_judge([address, judge = judge.release()](std::span<const c10::StorageImpl* const> storages) {
      const py::gil_scoped_acquire gil;
      std::vector<Address> addresses;
      for (const c10::StorageImpl* const storage : storages) addresses.push_back(address(storage));
      return judge(addresses).cast<std::vector<bool>>();
    });
  });
}

}  // namespace vedette::python
