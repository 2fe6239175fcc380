// RecordFunction into Session::op: see operators.h.
#include "adapter/torch/operators.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "adapter/torch/allocator.h"
#include "adapter/torch/rows.h"

namespace vedette::adapter {
namespace {

// The thread whose operators are announced, named by the address of a variable of its own; nobody else looks at
// `announcer`.
thread_local char this_thread;
thread_local int optimizer_steps = 0;
std::atomic<const void*> announcing_thread{nullptr};
Announcer* announcer = nullptr;

struct Operands {  // addresses of storages
  c10::SmallVector<const void*, 16> reads, writes;
  std::vector<Part> parts;
  std::optional<LayerIndex> parameter;
};

// The whole storage is written: what was there before is of no use to anybody.
bool covers_its_storage(const c10::TensorImpl& tensor, const c10::StorageImpl& storage) {
  return tensor.is_non_overlapping_and_dense_default() && tensor.storage_offset() == 0 &&
         static_cast<std::size_t>(tensor.numel()) * tensor.itemsize() == storage.nbytes();
}

void add(const c10::TensorImpl* tensor, std::uint8_t use, const Watched& watched, Operands& operands) {
  if (tensor == nullptr || tensor == c10::UndefinedTensorImpl::singleton()) return;
  if (tensor->is_cpu() && tensor->layout() == c10::kSparse) {
    const auto* const sparse = static_cast<const at::SparseTensorImpl*>(tensor);
    add(sparse->indices().unsafeGetTensorImpl(), use, watched, operands);
    return add(sparse->values().unsafeGetTensorImpl(), use, watched, operands);
  }
  if (!tensor->is_cpu() || tensor->layout() != c10::kStrided || !tensor->has_storage()) return;
  const c10::StorageImpl* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  const void* const memory = storage->data_ptr().get();
  if (memory == nullptr) return;
  if (!operands.parameter) operands.parameter = watched.layer_of(storage);
  if (use & (Operator::write | Operator::overwrite)) operands.writes.push_back(memory);
  const bool reads = (use & Operator::read) || ((use & Operator::overwrite) && !covers_its_storage(*tensor, *storage));
  if (reads) operands.reads.push_back(memory);
}

void add(const c10::IValue& value, std::uint8_t use, const Watched& watched, Operands& operands) {
  if (value.isTensor()) return add(value.unsafeToTensorImpl(), use, watched, operands);
  if (!value.isList()) return;
  for (const c10::IValue& item : value.toListRef()) {
    if (!item.isTensor()) break;  // lists are of one type, optional tensors aside
    add(item.unsafeToTensorImpl(), use, watched, operands);
  }
}

// What fills its storage tells the storage's shape.
void tell_shape(Session& session, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != c10::kStrided || !tensor.has_storage()) return;
  if (!covers_its_storage(*tensor.unsafeGetTensorImpl(), *tensor.storage().unsafeGetStorageImpl())) return;
  const c10::IntArrayRef sizes = tensor.sizes();
  session.shape(tensor.storage().data(), {sizes.data(), sizes.size()});
}

void tell_shapes(Session& session, c10::ArrayRef<const c10::IValue> inputs) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) tell_shape(session, input.toTensor());
    if (!input.isTensorList()) continue;
    for (const at::Tensor& tensor : input.toTensorVector()) tell_shape(session, tensor);
  }
}

struct OpContext final : at::ObserverContext {
  OpContext(Announcer& a, const char* name, const Operands& operands, c10::ArrayRef<const c10::IValue> inputs)
      : owner(a),
        scope(a.session.op(name, {operands.reads.data(), operands.reads.size()},
                           {operands.writes.data(), operands.writes.size()}, operands.parts)) {
    owner.in_op = true;
    // Optimizers make their state in their first step, as zeros of a parameter's shape.
    const bool in_optimizer = optimizer_steps > 0 || owner.layers.phase() == Phase::optimizer;
    makes_state = in_optimizer && std::string_view(name).ends_with("zeros_like");
    if (!makes_state) return;
    if (!inputs.empty() && inputs[0].isTensor()) state_name = owner.watched.name_new_state(inputs[0].toTensor());
    set_birth({.kind = TensorKind::optimizer, .persistent = true, .name = state_name});
  }
  ~OpContext() override {  // an exception out of the op comes here, too
    owner.in_op = false;
    if (makes_state) set_birth({});
  }
  Announcer& owner;
  OpScope scope;
  bool makes_state = false;
  std::string state_name;
};

struct NodeContext final : at::ObserverContext {  // one autograd node of a backward pass
  NodeContext(LayerTracker& l, std::int64_t sequence) : layers(l) { layers.begin_backward(sequence); }
  ~NodeContext() override { layers.end_backward(); }
  LayerTracker& layers;
};

// The argument of which the op touches some rows only, which are now in `operands`; -1: there is none.
int add_rows_of(const Operator& op, c10::ArrayRef<const c10::IValue> inputs, const Announcer& owner,
                Operands& operands) {
  if (!op.rows || op.rows->numbers >= inputs.size()) return -1;
  if (op.rows->dimension && !(inputs[*op.rows->dimension].isInt() && inputs[*op.rows->dimension].toInt() == 0))
    return -1;
  const std::uint8_t table = op.rows->table;
  const bool written = table < op.uses.size() && (op.uses[table] & (Operator::write | Operator::overwrite)) != 0;
  if (!add_rows(inputs[table], inputs[op.rows->numbers], op.rows->is_sparse, written, owner.chunk, operands.parts))
    return -1;
  operands.parameter = owner.watched.layer_of(inputs[table].toTensor().storage().unsafeGetStorageImpl());
  return table;
}

std::unique_ptr<at::ObserverContext> begin_op(Announcer& owner, const at::RecordFunction& function) {
  const Operator& op = owner.table.of(function);
  if (op.transparent) return nullptr;
  Operands operands;
  const auto inputs = function.inputs();
  const int in_parts = add_rows_of(op, inputs, owner, operands);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<int>(i) == in_parts) continue;
    const std::uint8_t use = i < op.uses.size() ? op.uses[i] : std::uint8_t{Operator::read};
    if (use != Operator::nothing) add(inputs[i], use, owner.watched, operands);
  }
  if (owner.in_step) {
    const auto mark = owner.layers.begin_op(
        {.parameter = operands.parameter, .sequence = function.seqNr(), .gradients_on = c10::GradMode::is_enabled()});
    if (mark) owner.session.mark_layer(mark->name, mark->phase);
    if (owner.session.wants_shapes()) tell_shapes(owner.session, inputs);
  }
  return std::make_unique<OpContext>(owner, function.name(), operands, inputs);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  // relaxed: only the thread that stored its own name finds it here
  if (announcing_thread.load(std::memory_order_relaxed) != &this_thread || announcer->in_op) return nullptr;
  if (announcer->session.in_child()) return nullptr;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    return std::make_unique<NodeContext>(announcer->layers, function.seqNr());
  }
  // The autograd engine wraps each node, and the sums of gradients that follow it, into a function of its own.
  constexpr char engine[] = "autograd::";
  if (std::strncmp(function.name(), engine, sizeof engine - 1) == 0)
    return std::make_unique<NodeContext>(announcer->layers, -1);
  return begin_op(*announcer, function);
}

}  // namespace

OptimizerSteps::OptimizerSteps() noexcept { ++optimizer_steps; }
OptimizerSteps::~OptimizerSteps() { --optimizer_steps; }

void listen_to_operators(bool on) {
  static const at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback(&begin).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  static bool is_on = true;
  if (on == is_on) return;
  is_on = on;
  if (on) {
    at::reenableCallback(handle);
  } else {
    at::disableCallback(handle);
  }
}

void announce_this_thread(Announcer& to) {
  announcing_thread.store(nullptr, std::memory_order_relaxed);
  announcer = &to;
  announcing_thread.store(&this_thread, std::memory_order_relaxed);
}

void stop_announcing(const Announcer& to) {
  if (announcer != &to) return;
  announcing_thread.store(nullptr, std::memory_order_relaxed);
  announcer = nullptr;
}

}  // namespace vedette::adapter
