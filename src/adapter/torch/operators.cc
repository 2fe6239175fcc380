// RecordFunction into Session::op: see operators.h.
#include "adapter/torch/operators.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/torch/allocator.h"
#include "adapter/torch/gloo_works.h"
#include "adapter/torch/gpu_addresses.h"
#include "adapter/torch/gpu_beside.h"
#include "adapter/torch/gpu_graphs.h"
#include "adapter/torch/gpu_lists.h"
#include "adapter/torch/gpu_storages.h"
#include "adapter/torch/kept_memory.h"
#include "adapter/torch/listener.h"
#include "adapter/torch/op_operands.h"
#include "adapter/torch/other_writers.h"
#include "adapter/torch/result_size.h"
#include "adapter/torch/rows.h"
#include "adapter/torch/session_memory.h"
#include "adapter/torch/small_operands.h"
#include "adapter/torch/storages.h"
#include "adapter/torch/stream_works.h"
#include "adapter/torch/taken_apart.h"
#include "adapter/torch/training_mark.h"
#include "adapter/torch/turn.h"
#include "base/assert.h"

namespace vedette::adapter {
namespace {

thread_local int optimizer_steps = 0;
thread_local int nodes_here = 0;    // autograd nodes that this thread runs
thread_local int holding_here = 0;  // operators of a thread that does not train
thread_local std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made_in_op;  // on a GPU, by functions in the op
thread_local bool unheard_here = false;               // an operator that is not heard may run
thread_local bool uses_others_here = false;           // operators in this thread's op may have other operands
thread_local std::vector<const void*> operands_here;  // of this thread's op, where others are of interest
// The thread whose operators are announced. Under a guard of GPU memory other threads look at `announcer`, too: its
// guard ends when none does any more.
std::atomic<const void*> announcing_thread{nullptr};
std::atomic<Announcer*> announcer{nullptr};
std::atomic<bool> is_of_a_gpu{false};      // the announcer
std::atomic<std::uint32_t> looking_at{0};  // how many other threads do
std::atomic<bool> hears_nodes{true};       // else nodes_here says nothing: the session rests

struct Context : at::ObserverContext {
  std::optional<StreamWork> stream_work;  // of a function of c10d's under a guard of GPU memory
};

struct OpContext final : Context, Kept<OpContext> {
  OpContext(Announcer& a, const at::RecordFunction& function, const Operator& op, const OpOperands& operands)
      : OpContext(a, function.name(), operands, arguments_of(function)) {
    operands.small.tell();
    refuse(arguments_of(function), op.writes());
    if (refused) return;
    if (owner.session.wants_recipe()) recipe = owner.recipes.make(function, op, owner.session, owner.gpu);
    if (!op.communicates) return;
    if (owner.gpu == nullptr) {
      works.emplace(arguments_of(function));
    } else if (is_of_c10d(function.name())) {
      stream_work.emplace(function.name(), arguments_of(function));
    }
  }
  OpContext(Announcer& a, const char* name, const OpOperands& operands, c10::ArrayRef<const c10::IValue> inputs)
      : owner(a),
        scope(a.session.op(name, {operands.reads.data(), operands.reads.size()},
                           {operands.writes.data(), operands.writes.size()}, operands.parts, operands.result)) {
    if (owner.gpu != nullptr) owner.gpu->settle();
    if (owner.gpu != nullptr || operands.wrap_others) {
      uses_others_here = true;
      operands_here.assign(operands.reads.begin(), operands.reads.end());
      operands_here.insert(operands_here.end(), operands.writes.begin(), operands.writes.end());
      for (const Part& part : operands.parts) operands_here.push_back(part.first);
    }
    // Optimizers make their state in their first step, as zeros of a parameter's shape.
    const bool in_optimizer = optimizer_steps > 0 || owner.layers.phase() == Phase::optimizer;
    makes_state = in_optimizer && std::string_view(name).ends_with("zeros_like");
    if (!makes_state) return;
    if (!inputs.empty() && inputs[0].isTensor()) state_name = owner.watched.name_new_state(inputs[0].toTensor());
    set_birth({.kind = TensorKind::optimizer, .persistent = true, .name = state_name});
  }
  ~OpContext() override {  // an exception out of the op comes here, too
    uses_others_here = false;
    operands_here.clear();
    if (makes_state) set_birth({});
    Recipes::finish(std::move(recipe), owner.session, std::uncaught_exceptions() > exceptions);
  }
  // An op without its operands ends with an error.
  void refuse(c10::ArrayRef<const c10::IValue> arguments, bool writes) {
    auto error = owner.gpu != nullptr ? take_refusal() : nullptr;
    if (error == nullptr) return;
    if (writes && !Refused::writes_too())
      die("an operator writes to a tensor for which neither the budget nor the GPU has room, and with this libtorch it "
          "cannot be ended by an error; use libtorch 2.13 or later, a larger budget, or a smaller batch");
    refused.emplace(std::move(error), arguments);
  }
  Announcer& owner;
  // The members end in the opposite order: the op, then the session's kept recipe, then this thread's turn.
  struct Turn {
    ~Turn() { end_turn(); }
  } turn;
  struct Settling {
    GpuStorages* gpu;
    ~Settling() { gpu != nullptr ? gpu->settle() : void(); }
  } settling{owner.gpu};
  OpScope scope;
  const int exceptions = std::uncaught_exceptions();
  std::unique_ptr<Recipe> recipe;
  bool makes_state = false;
  std::string state_name;
  std::optional<OpOfWorks> works;
  std::optional<Refused> refused;  // its operands have no room: see gpu_beside.h
};

struct RefusedContext final : Context, Refused {  // they have none on the device, either
  using Refused::Refused;
  ~RefusedContext() override { end_turn(); }
};

// An operator that is no op: its operands stay until its work is queued, or done.
struct HoldingContext final : Context {
  explicit HoldingContext(GpuStorages* storages) : gpu(storages) { ++holding_here; }
  ~HoldingContext() override {
    --holding_here;
    held.clear();
    if (gpu != nullptr) gpu->settle();
  }
  GpuStorages* const gpu;
  struct Held {
    Held(Session& session, const void* name) : scope(session.resident(name)) {}
    ResidentScope scope;
  };
  std::list<Held> held;            // scopes do not move
  std::optional<Refused> refused;  // one of them has no room
};

// A function of c10d's that an op calls.
struct CommunicationContext final : Context {
  explicit CommunicationContext(const at::RecordFunction& function) : works(arguments_of(function)) {}
  OpOfWorks works;
};

struct NodeContext final : Context, Kept<NodeContext> {  // one autograd node of a backward pass
  NodeContext(LayerTracker& l, std::int64_t sequence) : layers(l) {
    ++nodes_here;
    layers.begin_backward(sequence);
  }
  ~NodeContext() override {
    layers.end_backward();
    --nodes_here;
  }
  LayerTracker& layers;
};

std::unique_ptr<at::ObserverContext> begin_op(Announcer& owner, const at::RecordFunction& function) {
  const Operator& op = owner.table.of(function);
  const auto inputs = arguments_of(function);
  if (op.transparent || (op.list_is_transparent && goes_one_by_one(owner, inputs))) return nullptr;
  if (is_taken_apart(inputs)) return nullptr;
  if (op.communicates && owner.gpu == nullptr) send_from_ordinary_memory(inputs);
  if (op.communicates && owner.gpu != nullptr) owner.session.hear_ops();  // its work uses operands after its end
  if (owner.gpu != nullptr && op.takes_lists && goes_in_groups(inputs)) return nullptr;
  OpOperands operands(owner);
  operands.views = !op.communicates;
  const int in_parts = add_rows(op, inputs, owner, operands);
  if (owner.gpu != nullptr) {
    let_asked_storages_go();
    auto refused = let_operands_fit(*owner.gpu, inputs, 1, in_parts);
    if (refused && (!op.writes() || Refused::writes_too()))
      return std::make_unique<RefusedContext>(std::move(refused), inputs);
    owner.gpu->prepare_workspaces(nodes_here == 0);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (static_cast<int>(i) == in_parts) continue;
    const std::uint8_t use = i < op.uses.size() ? op.uses[i] : std::uint8_t{Operator::read};
    if (use != Operator::nothing || owner.gpu != nullptr) operands.add(inputs[i], use, owner);
  }
  if (owner.gpu != nullptr) operands.result = {likely_result(op, inputs)};
  if (owner.in_step) {
    const auto mark = owner.layers.begin_op(
        {.parameter = operands.parameter, .sequence = function.seqNr(), .gradients_on = c10::GradMode::is_enabled()});
    if (mark) owner.session.mark_layer(mark->name, mark->phase);
    if (owner.session.wants_shapes()) tell_shapes(owner.session, inputs);
  }
  return std::make_unique<OpContext>(owner, function, op, operands);
}

// The op of this thread, which calls the operator, was not called with the storage: it may be away.
bool is_beside_the_op(const Announcer& owner, const c10::StorageImpl& storage) {
  if (owner.gpu != nullptr && !owner.gpu->was_seen(storage)) return false;
  return std::find(operands_here.begin(), operands_here.end(), session_memory(storage)) == operands_here.end();
}

// Of an operator or a kernel that is no op of its own: of a thread that does not train, or called by an op.
std::unique_ptr<at::ObserverContext> hold_operands(Announcer& owner, c10::ArrayRef<const c10::IValue> arguments,
                                                   bool in_op, std::unique_ptr<HoldingContext> context = nullptr) {
  if (owner.gpu != nullptr && !in_op) static_cast<void>(let_operands_fit(*owner.gpu, arguments, 2));
  std::vector<c10::StorageImpl*> operands;  // the largest first, while there is room in one piece
  for (const c10::IValue& input : arguments)
    each_storage(input, owner.gpu != nullptr ? c10::kCUDA : c10::kCPU, [&](c10::StorageImpl& storage) {
      if (!in_op || is_beside_the_op(owner, storage)) operands.push_back(&storage);
    });
  std::stable_sort(operands.begin(), operands.end(), [](auto* a, auto* b) { return a->nbytes() > b->nbytes(); });
  for (c10::StorageImpl* const operand : operands) {
    const void* const name = owner.gpu != nullptr ? owner.gpu->seen(*operand) : session_memory(*operand);
    if (name == nullptr) continue;
    if (context == nullptr) context = std::make_unique<HoldingContext>(owner.gpu);
    context->held.emplace_back(owner.session, name);
    if (operand->data_ptr().get() != nullptr) continue;
    context->held.pop_back();
    try {
      const c10::DeviceGuard on_device(operand->device());
      owner.gpu->move_beside(*operand);
    } catch (const c10::Error&) {
      if (!Refused::writes_too())
        die("an operator needs a tensor for which neither the budget nor the GPU has room now; give a larger budget");
      context->refused.emplace(std::current_exception(), arguments);
      break;
    }
  }
  if (context != nullptr && owner.gpu != nullptr) owner.gpu->settle();
  return context;
}

std::unique_ptr<at::ObserverContext> hold_operands(Announcer& owner, const at::RecordFunction& function, bool in_op) {
  std::unique_ptr<HoldingContext> context;
  const auto arguments = arguments_of(function);
  if (is_taken_apart(arguments)) return nullptr;
  if (owner.gpu != nullptr && is_of_c10d(function.name())) {
    context = std::make_unique<HoldingContext>(owner.gpu);
    context->stream_work.emplace(function.name(), arguments);
  }
  return hold_operands(owner, arguments, in_op, std::move(context));
}

// Operators that autograd knows run below it, and so do those that they call. In inference mode all do.
bool inside_of_unheard() {
  unheard_here = unheard_here && !c10::InferenceMode::is_enabled() &&
                 c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
  return unheard_here;
}

struct Looking {  // in one order with the announcer: this thread sees that the guard ends, or the guard waits for it
  explicit Looking(bool trains) noexcept : count(trains ? 0 : 1) { looking_at.fetch_add(count); }
  ~Looking() { looking_at.fetch_sub(count); }
  const std::uint32_t count;
};

std::unique_ptr<at::ObserverContext> begin_kernel(const std::string& name, std::span<const at::Tensor> reads,
                                                  std::span<const at::Tensor> writes) {
  const bool trains = announcing_thread.load(std::memory_order_relaxed) == this_thread();  // as in begin()
  if (!trains && !is_of_a_gpu.load(std::memory_order_relaxed)) return others_write(writes), nullptr;
  const Looking looking(trains);
  Announcer* const owner = announcer.load();  // pairs with announce_this_thread()
  if (owner == nullptr || owner->session.in_child() || !owner->session.wants_ops()) return nullptr;
  const bool in_op = has_turn();
  std::vector<c10::IValue> values(reads.begin(), reads.end());
  values.insert(values.end(), writes.begin(), writes.end());
  const c10::ArrayRef<const c10::IValue> arguments(values.data(), values.size());
  if (owner->gpu != nullptr && keep_if_captured(*owner->gpu, arguments)) return nullptr;
  const bool beside = in_op || !announces_this_thread();  // the CPU's kernels find what is away by page faults
  if (beside) return owner->gpu == nullptr ? nullptr : hold_operands(*owner, arguments, in_op);
  if (inside_of_unheard()) return nullptr;
  if (!trains && turn_is_outside_of_nodes()) return hold_operands(*owner, arguments, in_op);
  if (!take_turn(nodes_here > 0)) return nullptr;
  try {
    let_asked_storages_go();
    if (owner->gpu != nullptr) throw_if_any(let_operands_fit(*owner->gpu, arguments));
    OpOperands operands;
    for (const at::Tensor& tensor : reads) operands.add(tensor, Operator::read, *owner);
    for (const at::Tensor& tensor : writes) operands.add(tensor, Operator::read | Operator::write, *owner);
    if (owner->in_step) {
      // Autograd sees a compiled region as one node, whose number is not the kernel's.
      const auto mark = owner->layers.begin_op(
          {.parameter = operands.parameter, .sequence = -1, .gradients_on = c10::GradMode::is_enabled()});
      if (mark) owner->session.mark_layer(mark->name, mark->phase);
    }
    auto context = std::make_unique<OpContext>(*owner, name.c_str(), operands, arguments);
    throw_if_any(take_refusal());
    return context;
  } catch (...) {
    end_turn_of_this_thread();
    throw;
  }
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  // relaxed: only the thread that stored its own name finds it here
  const bool trains = announcing_thread.load(std::memory_order_relaxed) == this_thread();
  if (!trains && !is_of_a_gpu.load(std::memory_order_relaxed)) {
    if (writers_are_looked_for.load(std::memory_order_relaxed)) others_write(function);
    return nullptr;
  }
  const Looking looking(trains);
  Announcer* const owner = announcer.load();  // pairs with announce_this_thread()
  if (owner == nullptr || owner->session.in_child()) return nullptr;
  const bool is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  // The autograd engine wraps each node, and the sums of gradients that follow it, into a function of its own.
  const bool is_engine = std::string_view(function.name()).starts_with("autograd::");
  if (owner->gpu != nullptr && !is_node && !is_engine && keep_if_captured(*owner->gpu, arguments_of(function)))
    return nullptr;  // no op: its kernels run when the graph is replayed
  // Backward of a GPU's tensors runs on a thread of its device, and so does another thread's.
  const bool in_pass = nodes_here > 0 || is_node || is_engine;
  if (!trains && !(owner->gpu != nullptr && in_pass && has_training_mark())) {
    if (is_node || is_engine || owner->gpu == nullptr) return nullptr;
    return hold_operands(*owner, function, /*in_op=*/false);
  }
  if (has_turn()) {
    if (uses_others_here) return hold_operands(*owner, function, /*in_op=*/true);
    if (!is_of_c10d(function.name())) return nullptr;
    return std::make_unique<CommunicationContext>(function);
  }
  if (is_node || is_engine)
    return std::make_unique<NodeContext>(owner->layers, is_node ? function.seqNr() : std::int64_t{-1});
  if (inside_of_unheard()) return nullptr;
  // An op of the training's thread runs this pass, as a kernel in Python may, and waits for it.
  if (!trains && turn_is_outside_of_nodes()) return hold_operands(*owner, function, /*in_op=*/false);
  if (!take_turn(nodes_here > 0)) return nullptr;
  try {
    auto context = begin_op(*owner, function);
    if (context == nullptr) end_turn();
    return context;
  } catch (...) {  // libtorch goes on without a context
    end_turn_of_this_thread();
    throw;
  }
}

// Results of an op on a GPU, and of functions that are no ops (empty, a composite). Inside of an op a new tensor stays
// until that op has ended: autograd keeps a copy that hardtanh_ makes, for instance.
void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const bool ends_op = dynamic_cast<OpContext*>(context) != nullptr;
  const bool trains = announcing_thread.load(std::memory_order_relaxed) == this_thread();
  const Looking looking(trains);
  const Announcer* const owner = announcer.load();  // pairs with announce_this_thread()
  if (owner == nullptr || owner->gpu == nullptr) return;
  if (auto* const ours = static_cast<Context*>(context); ours != nullptr && ours->stream_work)
    ours->stream_work->queued(function.outputs());
  const bool in_op = has_turn();
  if (!in_op && !announces_this_thread()) return;
  if (in_op && !ends_op) {
    for (const c10::IValue& output : function.outputs())
      each_storage(output, c10::kCUDA, [](c10::StorageImpl& storage) {
        if (GpuStorages::name_of(storage) != nullptr)
          made_in_op.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
      });
    return;
  }
  SmallOperands results = ends_op ? SmallOperands(*owner) : SmallOperands();
  for (const c10::IValue& output : function.outputs())
    each_storage(output, c10::kCUDA, [&](c10::StorageImpl& storage) {
      owner->gpu->seen(storage);  // from now on it may move, but for the time of an op that has it
      results.add(storage, true);
    });
  if (!ends_op) return;
  results.tell();
  for (const auto& made : std::exchange(made_in_op, {})) {
    if (const auto storage = made.lock()) owner->gpu->seen(*storage);
  }
  owner->gpu->op_has_ended();
}

}  // namespace

OptimizerSteps::OptimizerSteps() noexcept { ++optimizer_steps; }
OptimizerSteps::~OptimizerSteps() { --optimizer_steps; }

KernelOp::KernelOp(const std::string& name, std::span<const at::Tensor> reads, std::span<const at::Tensor> writes)
    : context_(begin_kernel(name, reads, writes)) {}
KernelOp::~KernelOp() = default;

void hear_operators_of_gpu(Session& session) {
  session.hear_ops();
  listen_to_operators(Listening::to_operands_and_results);
}

void hear_operators_after_this(Session& session) {
  unheard_here = !has_turn();
  hear_operators_of_gpu(session);
}

// Results are asked for where a GPU's storages are to be seen: libtorch's lists of them cost time.
void listen_to_operators(Listening what) {
  static Listener inputs{at::RecordFunctionCallback(&begin)};
  static Listener inputs_and_outputs{at::RecordFunctionCallback(&begin, &end).needsOutputs(true)};
  hears_nodes.store(what != Listening::off, std::memory_order_relaxed);
  inputs.turn(what == Listening::to_operands);
  inputs_and_outputs.turn(what == Listening::to_operands_and_results);
}

void announce_this_thread(Announcer& to) {
  announcing_thread.store(nullptr, std::memory_order_relaxed);
  // A forked child has a guard of its own, and not the thread whose op ran when its parent forked.
  if (announcer.load(std::memory_order_relaxed) != &to) forget_turn();
  is_of_a_gpu.store(to.gpu != nullptr, std::memory_order_relaxed);
  announcer.store(&to);  // pairs with begin()
  announcing_thread.store(this_thread(), std::memory_order_relaxed);
  if (to.gpu != nullptr) mark_training_thread();
  look_for_other_writers(&to.session);
}

bool announces_this_thread() noexcept {
  if (announcing_thread.load(std::memory_order_relaxed) == this_thread()) return true;
  const bool rests = is_of_a_gpu.load(std::memory_order_relaxed) && !hears_nodes.load(std::memory_order_relaxed);
  return (nodes_here > 0 || rests) && has_training_mark();
}

bool in_op_of_this_thread() noexcept { return holding_here > 0 || has_turn(); }

bool is_between_ops_of_its_own() noexcept {
  return announcing_thread.load(std::memory_order_relaxed) == this_thread() && !in_op_of_this_thread();
}

void without_weak_references(std::span<c10::TensorImpl* const> tensors, const std::function<void()>& work) {
  Announcer* const owner = announcer.load();
  owner == nullptr ? work() : owner->watched.without_weak_references(tensors, work);
}

void stop_announcing(const Announcer& to) {
  if (announcer.load(std::memory_order_relaxed) != &to) return;
  announcing_thread.store(nullptr, std::memory_order_relaxed);
  announcer.store(nullptr);
  look_for_other_writers(nullptr);
  while (to.gpu != nullptr && !to.session.in_child() && looking_at.load() > 0) std::this_thread::yield();
}

}  // namespace vedette::adapter
