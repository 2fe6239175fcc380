// Calls, what is remembered of them, and their queueing: see operators.h.
#include "simulated_gpu/operators.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "simulated_gpu/aliases.h"
#include "simulated_gpu/entry.h"
#include "simulated_gpu/generators.h"
#include "simulated_gpu/host_tensors.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/nodes.h"
#include "simulated_gpu/reports.h"
#include "simulated_gpu/shapes.h"
#include "simulated_gpu/workspaces.h"

namespace vedette::simulated {
namespace {

using c10::IValue;
using Stack = torch::jit::Stack;

struct Call {
  const c10::OperatorHandle& op;
  Stack arguments;  // as they came
  Stack for_cpu;    // device tensors as aliases; CPU scalars copied now, since the program may change them
  std::vector<at::Tensor> tensors, aliases;  // device tensors and theirs, in order
  std::vector<bool> written;
  Workspaces workspaces;            // that its kernels use
  std::vector<at::Tensor> of_host;  // that they read
  const char* name() const { return op.operator_name().name.c_str(); }
};

template <class Change>  // Change: at::Tensor(const at::Tensor&)
IValue with_tensors(const IValue& value, const Change& change) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : value.toTensorVector()) list.push_back(t.defined() ? change(t) : t);
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& t : value.toOptionalTensorVector())
      list.push_back(t && t->defined() ? std::optional(change(*t)) : t);
    return list;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isGenerator()) return {};  // Drawing sees to it
  return value;
}

at::Tensor host_operand(const c10::OperatorHandle& op, const at::Tensor& tensor, std::vector<at::Tensor>& kept) {
  const bool index = op.operator_name().name.find("index") != std::string::npos;
  TORCH_CHECK(tensor.dim() == 0 || index, "Expected all tensors to be on the same device, but ", op.operator_name(),
              " got a CPU tensor among tensors of the simulated GPU");
  if (tensor.numel() > 1) return kept.push_back(tensor), alias_on_host(tensor);
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

// Schemas of batch norms keep quiet about the running statistics that they change where they train.
bool changes_statistics(const Call& call) {
  static const std::set<std::string> always = {"aten::batch_norm_update_stats", "aten::batch_norm_gather_stats",
                                               "aten::batch_norm_gather_stats_with_counts"};
  if (always.contains(call.name())) return true;
  return call.op.operator_name().name == "aten::native_batch_norm" && call.arguments[5].toBool();  // training
}

Call open_call(const c10::OperatorHandle& op, Stack* stack) {
  const auto& declared = op.schema().arguments();
  Call call{.op = op,
            .arguments = {stack->end() - static_cast<std::ptrdiff_t>(declared.size()), stack->end()},
            .workspaces = workspaces_of(op)};
  torch::jit::drop(*stack, declared.size());
  const bool statistics = changes_statistics(call);
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const auto* const marked = declared[i].alias_info();
    const bool written =
        (marked != nullptr && marked->isWrite()) || (statistics && declared[i].name().starts_with("running_"));
    call.for_cpu.push_back(with_tensors(call.arguments[i], [&](const at::Tensor& t) {
      if (!on_device(t)) return host_operand(op, t, call.of_host);
      // Zeros of forward-mode derivatives have no bytes.
      call.tensors.push_back(t._is_zerotensor() ? at::zeros(t.sizes(), t.options()) : t);
      call.aliases.push_back(as_cpu(call.tensors.back()));
      call.written.push_back(written);
      return call.aliases.back();
    }));
  }
  return call;
}

std::vector<Access> accesses(const Call& call) {
  std::vector<Access> all = call.workspaces.accesses;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    for (const Access& each : accesses_of(call.tensors[i], call.written[i])) all.push_back(each);
  }
  return all;
}

// A result that the caller gave to be written into comes back as it came.
IValue returned_argument(const Call& call, std::size_t result) {
  const auto* const marked = call.op.schema().returns()[result].alias_info();
  if (marked == nullptr || !marked->isWrite()) return {};
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    const auto* const each = call.op.schema().arguments()[i].alias_info();
    if (each != nullptr && *each == *marked) return call.arguments[i];
  }
  return {};
}

void run_on_cpu(const c10::OperatorHandle& op, Stack& stack) {
  static thread_local const bool threads_set = (at::init_num_threads(), true);  // as many as the program's threads use
  static_cast<void>(threads_set);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::NoGradGuard no_grad;
  const at::RecordFunctionGuard no_callbacks(false);  // on a GPU there is no operator on this thread
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  if (!stack.empty()) vary(op, stack.front());
}

// A launch that is refused, as cudaLaunchKernel refuses it: libtorch's operator throws.
void launch_kernel(const char* what, const std::vector<Access>& all, std::function<void()> kernel) {
  TORCH_CHECK(enter("launch", false) == 0, "CUDA error: an error of the simulated GPU, at the launch of ", what);
  launch(current_stream(), named_by_node(what), all, std::move(kernel));
}

// The same of a call, whose kernels write into its workspaces, too.
void launch_kernel(const Call& call, const std::vector<Access>& all, std::function<void()> kernel) {
  if (call.workspaces.accesses.empty()) return launch_kernel(call.name(), all, std::move(kernel));
  launch_kernel(call.name(), all, [workspaces = call.workspaces.accesses, kernel = std::move(kernel)] {
    write_into(workspaces);
    kernel();
  });
}

// A kernel's error is the program's where the host waits; elsewhere it ends the process. `orders`: a GPU's host waits.
void run_and_wait(Call& call, bool orders) {
  refuse_where_captured(call.name());
  std::exception_ptr error;
  launch_kernel(call, accesses(call), [&] {
    try {
      run_on_cpu(call.op, call.for_cpu);
    } catch (...) {
      error = std::current_exception();
    }
  });
  orders ? current_stream().wait() : current_stream().wait_unordered();
  if (error) std::rethrow_exception(error);
}

void fill_from_host(const Call& call, const c10::Storage& device, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  void* const to = const_cast<void*>(device.data());
  note_accesses(current_stream(), named_by_node(call.name()), {{.at = to, .bytes = bytes, .write = true}});
  current_stream().push([=] { std::memcpy(memory().reach(to), from, bytes); });
  current_stream().wait_unordered();
}

// Arguments that an operator resized ("out="): their storages grow likewise. True when there were any.
bool follow_resizes(const Call& call) {
  bool any = false;
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const at::Tensor &t = call.tensors[i], &a = call.aliases[i];
    if (!call.written[i] || (t.sizes() == a.sizes() && t.strides() == a.strides())) continue;
    c10::Storage grown = device_storage(a.storage().nbytes());
    fill_from_host(call, grown, a.storage().data(), a.storage().nbytes());
    t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(grown.set_data_ptr({}));
    t.storage().unsafeGetStorageImpl()->set_nbytes(a.storage().nbytes());
    t.unsafeGetTensorImpl()->set_sizes_and_strides(a.sizes(), a.strides());
    any = true;
  }
  return any;
}

// Gives the results of a call that has run their places on the device, and learns their shapes.
class Adopting {
 public:
  explicit Adopting(const Call& call) : call_(call) { shape.view = true; }

  at::Tensor operator()(const at::Tensor& t) {
    const auto* const from = t.storage().unsafeGetStorageImpl();
    Output output{.like = at::empty_strided(t.sizes(), t.strides(), t.options().device(c10::kMeta))};
    c10::Storage where;
    for (std::size_t i = 0; i < call_.aliases.size(); ++i) {
      if (call_.aliases[i].storage().unsafeGetStorageImpl() != from) continue;
      where = call_.tensors[i].storage();
      output.input = static_cast<int>(i);
    }
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if (made_[i].first != from) continue;
      where = made_[i].second;
      output.storage = static_cast<int>(i);
    }
    if (!where) where = adopt(t, output);
    if (output.storage >= 0) shape.view = false;
    const bool inside = output.input >= 0;
    const std::int64_t base = inside ? call_.tensors[static_cast<std::size_t>(output.input)].storage_offset() : 0;
    output.like.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset() - base);
    shape.results.back().push_back(output);
    return tensor_over(where, c10::DispatchKey::CUDA, t);
  }

  Shape shape;

 private:
  c10::Storage adopt(const at::Tensor& t, Output& output) {
    output.storage = static_cast<int>(made_.size());
    c10::Storage where = device_storage(t.storage().nbytes());
    made_.emplace_back(t.storage().unsafeGetStorageImpl(), where);
    shape.storages.push_back(t.storage().nbytes());
    fill_from_host(call_, where, t.storage().data(), t.storage().nbytes());
    return where;
  }

  const Call& call_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made_;  // of the CPU, and where it lies on the device
};

// The first time: the operator runs while the host waits. Returns what was learned; empty when nothing may be.
std::optional<Shape> run_now(Call& call, Stack* stack, bool orders) {
  run_and_wait(call, orders);
  bool learned = !follow_resizes(call);
  Adopting adopting(call);
  Shape& shape = adopting.shape;
  for (std::size_t i = 0; i < call.for_cpu.size(); ++i) {
    shape.results.emplace_back();  // stays empty for a result that is an argument, or no tensor
    shape.is_list.push_back(call.for_cpu[i].isTensorList());
    if (const IValue given = returned_argument(call, i); !given.isNone()) {
      shape.view = false;
      torch::jit::push(*stack, given);
      continue;
    }
    if (!call.for_cpu[i].isTensor() && !call.for_cpu[i].isTensorList()) learned = false;
    torch::jit::push(*stack, with_tensors(call.for_cpu[i], [&](const at::Tensor& t) { return adopting(t); }));
  }
  for (const bool written : call.written) shape.view = shape.view && !written;
  if (!learned) return std::nullopt;
  return std::move(shape);
}

// Bytes in the same order: the strides of dimensions with one entry are nobody's.
bool is_laid_out_as(const at::Tensor& t, const at::Tensor& like) {
  if (t.sizes() != like.sizes() || t.scalar_type() != like.scalar_type()) return false;
  for (std::int64_t d = 0; d < t.dim(); ++d)
    if (t.size(d) > 1 && t.stride(d) != like.stride(d) && t.numel() > 0) return false;
  return true;
}

// Results that lie elsewhere than promised, in each other's places for instance: all are read before one is written.
class Misplaced {
 public:
  // On a stream's thread: a result must look as it did.
  void add(const at::Tensor& t, const Output& o, const std::vector<Buffer>& promised, const char* name) {
    if (!is_laid_out_as(t, o.like))
      misuse(std::string(name) +
             " has results of another shape than last time; name it in shapes.cc as data dependent");
    if (o.storage < 0) return;
    const Buffer& place = promised[static_cast<std::size_t>(o.storage)];
    if (place.at == nullptr || t.storage().data() == place.at) return;
    const auto* const from = static_cast<const char*>(t.storage().data());
    bytes_.push_back({place, std::vector<char>(from, from + place.bytes)});
  }
  void put_in_place() const {
    for (const auto& [place, bytes] : bytes_) std::memcpy(place.at, bytes.data(), bytes.size());
  }

 private:
  std::vector<std::pair<Buffer, std::vector<char>>> bytes_;
};

void fill_results(const c10::OperatorHandle& op, Stack& stack, const Shape& shape,
                  const std::vector<Buffer>& promised) {
  const char* const name = op.operator_name().name.c_str();
  std::vector<Buffer> buffers = promised;
  {
    const ServedFrom served(buffers);
    run_on_cpu(op, stack);
  }
  Misplaced misplaced;
  for (std::size_t i = 0; i < stack.size(); ++i) {
    if (shape.results[i].empty()) continue;
    if (stack[i].isTensor()) {
      if (stack[i].toTensor().defined()) misplaced.add(stack[i].toTensor(), shape.results[i][0], promised, name);
      continue;
    }
    std::size_t j = 0;
    for (const at::Tensor& t : stack[i].toTensorVector()) misplaced.add(t, shape.results[i][j++], promised, name);
  }
  misplaced.put_in_place();
}

at::Tensor make_result(const Call& call, const std::vector<c10::Storage>& made, const Output& o) {
  if (o.input < 0) return tensor_over(made[static_cast<std::size_t>(o.storage)], c10::DispatchKey::CUDA, o.like);
  const at::Tensor& input = call.tensors[static_cast<std::size_t>(o.input)];
  at::Tensor t = tensor_over(input.storage(), c10::DispatchKey::CUDA, o.like);
  t.unsafeGetTensorImpl()->set_storage_offset(input.storage_offset() + o.like.storage_offset());
  return t;
}

// Later: results are made at once, and the operator is queued to fill them.
void queue(Call& call, Stack* stack, const Shape& shape) {
  std::vector<c10::Storage> made;
  for (const std::size_t bytes : shape.storages) made.push_back(device_storage(bytes));
  if (!shape.view) {
    std::vector<Access> all = accesses(call);
    std::vector<Buffer> buffers;
    for (std::size_t i = 0; i < made.size(); ++i) {
      all.push_back({.at = made[i].data(), .bytes = shape.storages[i], .write = true});
      buffers.push_back(
          {.at = made[i].data() == nullptr ? nullptr : memory().reach(made[i].data()), .bytes = shape.storages[i]});
    }
    const auto done = std::make_shared<std::atomic<bool>>(false);
    launch_kernel(call, all, [op = call.op, arguments = call.for_cpu, buffers, &shape, done]() mutable {
      fill_results(op, arguments, shape, buffers);
      *done = true;
    });
    host_tensors().keep(std::move(call.of_host), done);
  }
  for (std::size_t i = 0; i < shape.results.size(); ++i) {
    if (const IValue given = returned_argument(call, i); !given.isNone()) {
      torch::jit::push(*stack, given);
    } else if (!shape.is_list[i]) {
      torch::jit::push(*stack, shape.results[i].empty() ? at::Tensor() : make_result(call, made, shape.results[i][0]));
    } else {
      c10::List<at::Tensor> list;
      for (const Output& o : shape.results[i]) list.push_back(make_result(call, made, o));
      torch::jit::push(*stack, list);
    }
  }
}

// An operator that draws, in a graph. Its results are its arguments: those of others are not known before they run.
void queue_draw(Call& call, Stack* stack) {
  const CapturedDraw draw(call.op, call.arguments);
  for (std::size_t i = 0; i < call.op.schema().returns().size(); ++i) {
    stack->push_back(returned_argument(call, i));
    if (stack->back().isNone())
      refuse_where_captured(call.name(), "makes a tensor of random numbers, which the simulated GPU cannot capture");
  }
  std::vector<Access> all = accesses(call);
  for (const Access& each : draw.accesses()) all.push_back(each);
  launch_kernel(call, all, [op = call.op, arguments = call.for_cpu, draw]() mutable {
    draw.give_generator(arguments);
    run_on_cpu(op, arguments);
  });
}

struct Known {
  std::mutex guard;
  std::unordered_map<std::string, Shape> shapes;  // nodes stay where they are: queued kernels refer to them
};

Known& known() {
  static auto* const whole = new Known;
  return *whole;
}

}  // namespace

void boxed(const c10::OperatorHandle& op, Stack* stack) {
  host_tensors().let_go();
  Call call = open_call(op, stack);
  const std::optional<std::string> key = shape_key(op, call.arguments);
  if (key) {
    std::unique_lock lock(known().guard);
    const auto found = known().shapes.find(*key);
    lock.unlock();
    if (found != known().shapes.end()) return queue(call, stack, found->second);
  }
  std::optional<Drawing> drawing;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    if (current_stream().capture() != nullptr) return queue_draw(call, stack);
    drawing.emplace(call.arguments);
  }
  std::optional<Shape> learned = run_now(call, stack, !key);
  if (!key || !learned || op.schema().returns().empty()) return;
  const std::lock_guard lock(known().guard);
  known().shapes.emplace(*key, std::move(*learned));
}

at::Tensor& copy_from(at::Tensor& to, const at::Tensor& given, bool non_blocking) {
  if (given._is_zerotensor()) return to.zero_();
  const at::Tensor from = given.sizes() == to.sizes() ? given : given.expand(to.sizes());
  const bool across = on_device(from) != on_device(to), in = on_device(to);
  std::vector<Access> all = accesses_of(from, false);
  for (const Access& each : accesses_of(to, true)) all.push_back(each);
  host_tensors().let_go();
  const at::Tensor& host = in ? from : to;
  const bool waits = across && (!non_blocking || !memory().pinned(host.const_data_ptr(), 1));
  if (waits) refuse_where_captured("aten::copy_");
  if (across) count_copy(to.nbytes(), current_stream().number());
  const auto done = std::make_shared<std::atomic<bool>>(false);
  launch_kernel("aten::copy_", all,
                [source = on_device(from) ? as_cpu(from) : alias_on_host(from),
                 into = in ? as_cpu(to) : alias_on_host(to), across, in, done] {
                  const at::AutoDispatchBelowADInplaceOrView below;
                  const at::NoGradGuard no_grad;
                  const at::RecordFunctionGuard no_callbacks(false);
                  into.copy_(source);
                  if (across) charge_link(in, into.nbytes());
                  *done = true;
                });
  if (!on_device(from)) host_tensors().keep({from}, done);
  if (!in) host_tensors().keep({to}, done);
  if (waits) current_stream().wait();
  return to;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  at::Scalar value;
  refuse_where_captured("aten::item");
  launch_kernel("aten::item", accesses_of(tensor, false),
                [&] { value = at::native::_local_scalar_dense_cpu(as_cpu(tensor)); });
  current_stream().wait();
  return value;
}

}  // namespace vedette::simulated
