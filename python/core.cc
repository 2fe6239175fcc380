// The door from Python to the guard: vedette._core. It holds no idea of its own: a class or function here is one of
// vedette/torch.h, and its documentation stands in vedette/__init__.pyi.
//
// Invariant: no call of the library that may wait is made with Python's lock (the GIL) held, and none of the library's
// threads ever takes that lock. Diagnostics come on a thread of the program and take it for the time of the call.
// Thread rule: as in vedette/torch.h.
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <span>
#include <stack>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "adapter/torch/exported.h"
#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/gradient_hooks.h"
#include "adapter/torch/operators.h"
#include "adapter/torch/ordinary_memory.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/stream_works.h"
#include "adapter/torch/switched_off.h"
#include "base/daily.h"
#include "exports.h"
#include "profiler/gpu_bytes.h"
#include "session/forks.h"
#include "session/lease.h"
#include "vedette/torch.h"

namespace py = pybind11;

namespace vedette::python {
namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::unavailable:
      return "unavailable";
    case Cause::unsupported:
      return "unsupported";
    case Cause::out_of_memory:
      return "out_of_memory";
    case Cause::malformed_input:
      return "malformed_input";
    case Cause::infeasible:
      return "infeasible";
    case Cause::system:
      break;
  }
  return "system";
}

[[noreturn]] void fail(Cause cause, std::string message) { throw Failure({cause, std::move(message), 0}); }

// One of a few words, as an enumeration's value.
template <class Value>
Value value_of(const char* option, const std::string& word,
               std::initializer_list<std::pair<std::string_view, Value>> values) {
  std::string known;
  for (const auto& [name, value] : values) {
    if (word == name) return value;
    known += (known.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  fail(Cause::malformed_input, std::string(option) + ": there is no '" + word + "'; there are " + known + ".");
}

// A function of the program's that gets sentences, as long as a guard is open: a closed one's memory, which tensors
// still fill, does not keep the function. It may be called while an exception of Python's is on its way, and what it
// raises is shown and goes no further.
class Speaker {
 public:
  explicit Speaker(py::function say) : say_(std::move(say)) {}
  ~Speaker() { end(); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;
  void operator()(std::string_view sentence) const {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    if (!say_) return;
    const py::error_scope pending;
    try {
      const py::function say = say_;
      say(py::str(sentence.data(), sentence.size()));
    } catch (py::error_already_set& raised) {
      raised.discard_as_unraisable("vedette's on_message");
    }
  }
  void end() noexcept {
    if (!Py_IsInitialized()) {  // its object went with the interpreter
      static_cast<void>(say_.release());
      return;
    }
    const py::gil_scoped_acquire gil;
    const py::error_scope pending;
    say_ = {};
  }

 private:
  py::function say_;
};

// Of open guards, which share a session: a later one's sentences go where the first one's do. Python's lock guards
// both.
std::vector<std::shared_ptr<Speaker>>& speakers() {
  static auto* const immortal = new std::vector<std::shared_ptr<Speaker>>;
  return *immortal;
}
int open_guards = 0;

std::function<void(std::string_view)> speaker(py::function say) {
  const auto speaker = speakers().emplace_back(std::make_shared<Speaker>(std::move(say)));
  return [speaker](std::string_view sentence) { (*speaker)(sentence); };
}

GuardOptions options_of(std::uint64_t fast_memory, double fraction_of_memory, const py::dict& words) {
  GuardOptions options;
  options.fast_memory = fraction_of_memory > 0 ? Bytes(fraction(fraction_of_memory)) : Bytes{fast_memory};
  options.fast = words["fast"].cast<std::string>();
  options.slow = words["slow"].cast<std::string>();
  options.policy = words["policy"].cast<std::string>();
  options.chunk = Bytes{words["chunk"].cast<std::uint64_t>()};
  options.warmup_steps = words["warmup_steps"].cast<std::uint32_t>();
  options.profile = value_of<ProfileTicks>(
      "profile", words["profile"].cast<std::string>(),
      {{"operands", ProfileTicks::operands}, {"layers", ProfileTicks::layers}, {"ops", ProfileTicks::ops}});
  options.tracker = words["tracker"].cast<std::string>();
  options.on_message = speaker(words["on_message"].cast<py::function>());
  options.seed = words["seed"].cast<std::uint64_t>();
  options.ranks = words["ranks"].cast<std::uint32_t>();
  options.interference_percent = words["interference_percent"].cast<std::optional<std::uint32_t>>();
  if (const auto fault = words["fault_ns"].cast<std::optional<std::int64_t>>())
    options.fault_time = Nanoseconds{*fault};
  options.table_memory = Bytes{words["table_memory"].cast<std::uint64_t>()};
  options.checksums = words["checksums"].cast<bool>();
  options.record = words["record"].cast<std::string>();
  options.max_writes = words["max_writes"].cast<std::string>();
  options.enabled = words["enabled"].cast<bool>();
  options.on_progress = speaker(words["on_progress"].cast<py::function>());
  options.verbose = words["verbose"].cast<bool>();
  options.pressure = words["pressure"].cast<bool>();
  options.share = words["share"].cast<std::string>();
  if (const auto recompute = words["recompute"].cast<std::optional<std::string>>())
    options.recompute =
        value_of<Recompute>("recompute", *recompute,
                            {{"off", Recompute::off}, {"planned", Recompute::planned}, {"always", Recompute::always}});
  return options;
}

// Guards that nobody closed. Python collects one at any moment: also on another thread than the one that trains, or in
// an op, whose scope uses the session. It ends when the training's thread is between ops, or at the next call for a
// guard. Python's lock guards the list.
std::vector<std::unique_ptr<Guard>>& left_guards() {
  static auto* const immortal = new std::vector<std::unique_ptr<Guard>>;
  return *immortal;
}

void let_go_of_speakers() {
  if (open_guards > 0 || !left_guards().empty()) return;
  for (const auto& each : std::exchange(speakers(), {})) each->end();
}

void end_left_guards() {
  auto ending = std::exchange(left_guards(), {});
  {
    const py::gil_scoped_release no_gil;
    ending.clear();
  }
  let_go_of_speakers();
}

int end_left_guards_between_ops(void*) {
  if (left_guards().empty()) return 0;
  if (adapter::is_between_ops_of_its_own()) {
    end_left_guards();
  } else if (adapter::in_op_of_this_thread()) {
    Py_AddPendingCall(&end_left_guards_between_ops, nullptr);
  }
  return 0;
}

struct LayerOfGuard {
  Guard::Layer scope;
};

class PythonGuard {
 public:
  PythonGuard(std::uint64_t fast_memory, double fraction_of_memory, const py::dict& words) {
    end_left_guards();
    GuardOptions options = options_of(fast_memory, fraction_of_memory, words);
    const py::gil_scoped_release no_gil;
    guard_ = std::make_unique<Guard>(std::move(options));
    const py::gil_scoped_acquire gil;
    ++open_guards;
  }
  Guard& open() {
    if (!guard_) fail(Cause::unavailable, "this guard is closed; open another one with vedette.Guard(...).");
    return *guard_;
  }
  ~PythonGuard() {
    if (!guard_) return;
    if (step_ || guard_->session().is_off() || adapter::is_between_ops_of_its_own()) {
      const py::gil_scoped_release no_gil;  // what waits here may need it
      step_.reset();
      end();
      return;
    }
    --open_guards;
    left_guards().push_back(std::move(guard_));
    Py_AddPendingCall(&end_left_guards_between_ops, nullptr);
  }
  bool is_closed() const noexcept { return !guard_; }
  void close() {
    std::erase_if(layers_, [](const auto& layer) { return layer.expired(); });
    if (step_ || !layers_.empty())
      fail(Cause::unsupported, "a step or layer of this guard runs; leave its `with` before close().");
    end();
  }
  // A generator may be suspended in a layer when the program leaves the guard.
  void end_scopes() noexcept {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
      if (const auto open = layer->lock()) open->scope.reset();
    layers_.clear();
    step_.reset();
  }
  void begin_step() {
    Guard& guard = open();
    if (step_) fail(Cause::unsupported, "a step of this guard runs; steps do not nest.");
    step_.emplace(guard);
  }
  void end_step() noexcept { step_.reset(); }
  bool in_step() const noexcept { return step_.has_value(); }
  struct OpenLayer {
    std::unique_ptr<LayerOfGuard> scope;  // nullptr: the guard has ended it
  };
  std::shared_ptr<OpenLayer> begin_layer(const std::string& name) {
    std::erase_if(layers_, [](const auto& layer) { return layer.expired(); });
    auto layer = std::make_shared<OpenLayer>();
    layer->scope.reset(new LayerOfGuard{open().layer(name)});
    layers_.push_back(layer);
    return layer;
  }

 private:
  void end() {
    if (!guard_) return;
    guard_.reset();
    const py::gil_scoped_acquire gil;
    --open_guards;
    let_go_of_speakers();
  }

  std::unique_ptr<Guard> guard_;
  std::optional<Guard::Step> step_;
  std::vector<std::weak_ptr<OpenLayer>> layers_;  // the inner ones last
};

using Watched = std::tuple<at::Tensor, std::string, std::string>;  // tensor, name, kind

void watch(PythonGuard& guard, const std::vector<Watched>& tensors) {
  std::vector<Guard::Named> named;
  named.reserve(tensors.size());
  for (const auto& [tensor, name, kind] : tensors) {
    named.push_back({tensor, name,
                     value_of<TensorKind>("kind", kind,
                                          {{"weight", TensorKind::weight},
                                           {"gradient", TensorKind::gradient},
                                           {"optimizer", TensorKind::optimizer},
                                           {"activation", TensorKind::activation},
                                           {"input", TensorKind::input},
                                           {"constant", TensorKind::constant}})});
  }
  guard.open().watch(named);
}

// What a `with` enters and leaves. Each is made anew by guard.step(), guard.layer() and guard.resident(). A program may
// leave what it has not entered, and drop what it has not left.
struct Step {
  std::shared_ptr<PythonGuard> guard;
  bool begun = false;
  bool runs = false;
};
struct Layer {
  std::shared_ptr<PythonGuard> guard;
  std::string name;
  std::stack<std::shared_ptr<PythonGuard::OpenLayer>> open = {};  // one for each time that it was entered
};
struct Resident {
  std::shared_ptr<PythonGuard> guard;
  at::Tensor tensor;
  struct Held {
    ResidentScope scope;
  };
  std::stack<std::shared_ptr<Held>> held = {};
};
struct OrdinaryMemory {
  std::optional<adapter::OrdinaryMemory> held = {};
};
struct BesideTheBudget {
  std::optional<adapter::BesideTheBudget> held = {};
};
struct OptimizerStep {
  std::optional<adapter::OptimizerSteps> held = {};
};

// Storages among a function's arguments, in place for the time of a call.
struct Storages {
  explicit Storages(const py::tuple& arguments) {
    for (const py::handle each : arguments)
      if (torch::isStorage(each.ptr())) storages.push_back(torch::createStorage(each.ptr()));
  }
  std::vector<at::Storage> storages;
  std::unique_ptr<adapter::HeldStorages> held = {};
  void hold() {
    std::vector<c10::StorageImpl*> wanted;
    for (const at::Storage& storage : storages) wanted.push_back(storage.unsafeGetStorageImpl());
    held = std::make_unique<adapter::HeldStorages>(wanted);
  }
  void end() {
    const py::gil_scoped_release no_gil;
    held.reset();
  }
};

// Nothing: the storage is no guard's on a GPU, and libtorch knows its address.
std::optional<std::uint64_t> address_of(const at::Storage& storage) {
  if (adapter::GpuStorages::name_of(*storage.unsafeGetStorageImpl()) == nullptr) return std::nullopt;
  const py::gil_scoped_release no_gil;
  return adapter::address_for_program(*storage.unsafeGetStorageImpl());
}

std::optional<std::uint64_t> address_of_tensor(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.numel() == 0) return std::nullopt;
  const auto begin = address_of(tensor.storage());
  if (!begin) return std::nullopt;
  return *begin + static_cast<std::uint64_t>(tensor.storage_offset()) * tensor.itemsize();
}

// A call of a kernel, with the tensors that it reads and writes.
py::object call_as_op(const std::string& name, std::span<const at::Tensor> reads, std::span<const at::Tensor> writes,
                      const auto& call) {
  struct Announced {
    Announced(const std::string& name, std::span<const at::Tensor> reads, std::span<const at::Tensor> writes) {
      const py::gil_scoped_release no_gil;
      op.emplace(name, reads, writes);
    }
    ~Announced() {
      const py::gil_scoped_release no_gil;
      op.reset();
    }
    Announced(const Announced&) = delete;
    Announced& operator=(const Announced&) = delete;
    std::optional<adapter::KernelOp> op;
  };
  const Announced announced(name, reads, writes);
  PyObject* const result = call();
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

// A kernel that torch.compile made, called as the generated code calls it. `writes` says of each argument whether the
// kernel writes it: its type in C++ is a pointer to what is not const.
class Kernel {
 public:
  Kernel(py::object kernel, std::vector<bool> writes, std::string called)
      : name(std::move(called)), kernel_(std::move(kernel)), writes_(std::move(writes)) {}
  py::object call(const py::args& arguments) const {
    std::vector<at::Tensor> reads, writes;
    for (std::size_t i = 0; i < arguments.size() && i < writes_.size(); ++i) {
      PyObject* const argument = PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i));
      if (THPVariable_Check(argument)) (writes_[i] ? writes : reads).push_back(THPVariable_Unpack(argument));
    }
    return call_as_op(name, reads, writes, [&] { return PyObject_CallObject(kernel_.ptr(), arguments.ptr()); });
  }
  std::string name;

 private:
  py::object kernel_;
  std::vector<bool> writes_;
};

void bind_scopes(py::module_& module) {
  py::class_<Step>(module, "Step")
      .def(
          "__enter__",
          [](Step& step) {
            step.begun = true;
            step.guard->begin_step();
            step.runs = true;
          },
          NoGil())
      .def_readonly("begun", &Step::begun)
      .def("__exit__", [](Step& step, const py::args&) {
        const py::gil_scoped_release no_gil;
        if (std::exchange(step.runs, false)) step.guard->end_step();
      });
  py::class_<Layer>(module, "Layer")
      .def("__enter__", [](Layer& layer) { layer.open.push(layer.guard->begin_layer(layer.name)); })
      .def("__exit__", [](Layer& layer, const py::args&) {
        if (!layer.open.empty()) layer.open.pop();
      });
  py::class_<Resident>(module, "Resident")
      .def(
          "__enter__",
          [](Resident& resident) {
            resident.held.emplace(new Resident::Held{resident.guard->open().resident(resident.tensor)});
          },
          NoGil())
      .def("__exit__", [](Resident& resident, const py::args&) {
        if (!resident.held.empty()) resident.held.pop();
      });
  py::class_<OrdinaryMemory>(module, "OrdinaryMemory")
      .def(py::init<>())
      .def("__enter__", [](OrdinaryMemory& memory) { memory.held.emplace(); })
      .def("__exit__", [](OrdinaryMemory& memory, const py::args&) { memory.held.reset(); });
  py::class_<BesideTheBudget>(module, "BesideTheBudget")
      .def(py::init<>())
      .def("__enter__", [](BesideTheBudget& memory) { memory.held.emplace(); })
      .def("__exit__", [](BesideTheBudget& memory, const py::args&) { memory.held.reset(); });
  py::class_<OptimizerStep>(module, "OptimizerStep")
      .def(py::init<>())
      .def("__enter__", [](OptimizerStep& step) { step.held.emplace(); })
      .def("__exit__", [](OptimizerStep& step, const py::args&) { step.held.reset(); });
}

void bind_storages(py::module_& module) {
  py::class_<Storages>(module, "Storages")
      .def(py::init([](const py::tuple& arguments) { return Storages(arguments); }))
      .def("__enter__", &Storages::hold, NoGil())
      .def("__exit__", [](Storages& storages, const py::args&) { storages.end(); });
  module.def("address_of_storage",
             [](const py::object& storage) { return address_of(torch::createStorage(storage.ptr())); });
  module.def("address_of_tensor", &address_of_tensor);
  module.def("mark_storage_exported", [](const py::object& object) {
    const at::Storage storage = torch::createStorage(object.ptr());
    const py::gil_scoped_release no_gil;
    adapter::mark_exported(*storage.unsafeGetStorageImpl());
  });
}

void bind_kernels(py::module_& module) {
  py::class_<Kernel>(module, "Kernel", py::dynamic_attr())
      .def(py::init<py::object, std::vector<bool>, std::string>())
      .def_readwrite("name", &Kernel::name)
      .def("__call__", &Kernel::call);
  // Without its holder, which is torch's own.
  module.def("a_group_ended", [](c10d::Work* work) { adapter::a_group_of_works_ended(*work); });
  using Tensors = std::vector<at::Tensor>;
  module.def("call_as_op",
             [](const std::string& name, const Tensors& reads, const Tensors& writes, const py::function& kernel) {
               return call_as_op(name, reads, writes, [&] { return PyObject_CallNoArgs(kernel.ptr()); });
             });
  module.def("guards_a_gpu", [] {
    const adapter::GpuStorages* const gpu = adapter::GpuStorages::opened();
    return gpu != nullptr && gpu->active();
  });
}

auto bytes_of(Bytes Counters::*bytes) {
  return [bytes](const Counters& counters) { return (counters.*bytes).value; };
}

void bind_counters(py::module_& module) {
  py::class_<Counters> counters(module, "Counters");
  counters.def_property_readonly("bytes_in", bytes_of(&Counters::bytes_in))
      .def_property_readonly("bytes_out", bytes_of(&Counters::bytes_out))
      .def_property_readonly("bytes_dropped", bytes_of(&Counters::bytes_dropped))
      .def_property_readonly("far_bytes_in", bytes_of(&Counters::far_bytes_in))
      .def_property_readonly("far_bytes_out", bytes_of(&Counters::far_bytes_out))
      .def_property_readonly("moved_between_slow_tiers", bytes_of(&Counters::moved_between_slow_tiers))
      .def_property_readonly("disk_bytes_out", bytes_of(&Counters::disk_bytes_out))
      .def_property_readonly("disk_bytes_a_day",
                             [](const Counters& c) {
                               const Nanoseconds time{static_cast<std::int64_t>(c.elapsed_ns)};
                               return static_cast<std::uint64_t>(bytes_a_day(c.disk_bytes_out, time));
                             })
      .def_property_readonly("bytes_in_place", bytes_of(&Counters::bytes_in_place))
      .def_readonly("stall_count", &Counters::stall_count)
      .def_readonly("stall_ns", &Counters::stall_ns)
      .def_readonly("faults", &Counters::faults)
      .def_property_readonly("bytes_recomputed", bytes_of(&Counters::bytes_recomputed))
      .def_readonly("ops_recomputed", &Counters::ops_recomputed)
      .def_readonly("recompute_ns", &Counters::recompute_ns)
      .def_property_readonly("live_bytes", bytes_of(&Counters::live_bytes))
      .def_property_readonly("peak_bytes", bytes_of(&Counters::peak_bytes))
      .def_property_readonly("resident_bytes", bytes_of(&Counters::resident_bytes))
      .def_property_readonly("resident_max_bytes", bytes_of(&Counters::resident_max_bytes))
      .def_readonly("steps", &Counters::steps)
      .def_readonly("ops", &Counters::ops)
      .def_readonly("elapsed_ns", &Counters::elapsed_ns);
  for (const GpuBytesField& each : gpu_bytes_fields)
    counters.def_property_readonly(each.key, [bytes = each.bytes](const Counters& c) { return (c.gpu.*bytes).value; });
  counters.def("__repr__", [](const py::object& self) {
    std::string text;
    const auto members = py::dict(py::type::of(self).attr("__dict__"));
    for (const auto& [name, member] : members)
      if (py::isinstance(member, py::module_::import("builtins").attr("property")))
        text += (text.empty() ? "" : ", ") + py::str("{}={}").format(name, self.attr(name)).cast<std::string>();
    return "Counters(" + text + ")";
  });
}

void bind_guard(py::module_& module) {
  using Shared = std::shared_ptr<PythonGuard>;
  const auto session = [](PythonGuard& guard) -> Session& { return guard.open().session(); };
  py::class_<PythonGuard, Shared>(module, "Guard")
      .def(py::init<std::uint64_t, double, const py::dict&>())
      .def("watch", &watch, NoGil())
      .def(
          "bring_home", [](PythonGuard& guard) { guard.open().bring_home(); }, NoGil())
      .def("close", &PythonGuard::close, NoGil())
      .def("end_scopes", &PythonGuard::end_scopes, NoGil())
      .def("step", [](const Shared& guard) { return Step{guard}; })
      .def("layer",
           [](const Shared& guard, std::string name) {
             return Layer{guard, std::move(name)};
           })
      .def("resident",
           [](const Shared& guard, at::Tensor tensor) {
             return Resident{guard, std::move(tensor)};
           })
      .def_property_readonly("is_closed", &PythonGuard::is_closed)
      .def_property_readonly("in_step", &PythonGuard::in_step)
      .def_property_readonly(
          "is_off", [session](PythonGuard& guard) { return session(guard).is_off() && !session(guard).in_child(); })
      .def_property_readonly("counters", [](PythonGuard& guard) { return guard.open().counters(); })
      .def_property_readonly("phase", [session](PythonGuard& guard) { return std::string(session(guard).phase()); })
      .def_property_readonly("mechanism", [session](PythonGuard& guard) { return session(guard).mechanism(); })
      .def(
          "set_fast_memory",
          [](PythonGuard& guard, std::uint64_t bytes, double share) {
            guard.open().set_fast_memory(share > 0 ? fraction(share) : Bytes{bytes});
          },
          NoGil())
      .def("place",
           [session](PythonGuard& guard, const std::string& names, const std::string& tier, bool rule) {
             guard.open().place(names, tier, rule ? Session::Placement::rule : Session::Placement::hint);
           })
      .def_property_readonly("budget", [session](PythonGuard& guard) { return session(guard).budget().value; })
      .def_property_readonly("smallest_budget",
                             [session](PythonGuard& guard) { return session(guard).smallest_budget().value; });
}

// vedette.Failure of the package, which has the cause as a word.
void raise_failures(py::module_& module, py::object failure) {
  static PyObject* kind = nullptr;  // lives as long as the interpreter
  kind = failure.release().ptr();
  module.attr("Failure") = py::reinterpret_borrow<py::object>(kind);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Failure& error) {
      const py::object raised = py::reinterpret_borrow<py::object>(kind)(
          error.error.message, name_of(error.error.cause), error.error.errno_value);
      PyErr_SetObject(kind, raised.ptr());
    }
  });
}

}  // namespace
}  // namespace vedette::python

PYBIND11_MODULE(_core, module) {
  using namespace vedette;
  python::bind_counters(module);
  python::bind_scopes(module);
  python::bind_guard(module);
  python::bind_kernels(module);
  python::bind_storages(module);
  python::bind_exports(module);
  module.def("raise_failures", [module](py::object failure) mutable { python::raise_failures(module, failure); });
  module.def("guards_are_switched_off", &adapter::guards_are_switched_off);
  module.def("end_left_guards", &python::end_left_guards);
  module.def("without_weak_references", [](const py::handle& one, const py::handle& other, const py::function& work) {
    c10::TensorImpl* const both[] = {THPVariable_Unpack(one.ptr()).unsafeGetTensorImpl(),
                                     THPVariable_Unpack(other.ptr()).unsafeGetTensorImpl()};
    vedette::adapter::without_weak_references(both, [&] { work(one, other); });
  });
  module.def("refuse_other_hooks", &adapter::refuse_other_hooks);
  module.def("come_first_in_child", &vedette::detail::come_first_in_child);
  module.def("resolve_vector_math", &resolve_vector_math, python::NoGil());
  vedette::detail::Lease::call_while_waiting([] {  // Ctrl-C ends the wait
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
  module.def("owns_address", [](std::uintptr_t address) {
    return Session::owns(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
  });
  module.def("owns", [](const at::Tensor& tensor) {
    return tensor.has_storage() && Session::owns(adapter::session_memory(*tensor.storage().unsafeGetStorageImpl()));
  });
}
