// Announces the operators of the training thread to the session. RecordFunction reports its begin, its end and its
// inputs. The operator's schema tells which of them it writes, the watched parameters to which layer it belongs.
//
// The callback is registered with libtorch once and is off while no guard lives, and while the session rests, for then
// libtorch lists no operator's inputs. It acts on one thread, the one that ran the last step or made the guard, in
// steps and between them, and on the outermost operator there that nothing takes apart (taken_apart.h). Threads of the
// user's own, data loaders for instance, are left alone. Under a guard of GPU memory it acts on autograd's device
// threads, too, while they run nodes of a backward pass that the training thread began (training_mark.h). Operators of
// the user's other threads, and of their backward passes, then hold their operands in GPU memory while they run, and
// are no part of the step. Thread rule: everything here belongs to the training thread.
#pragma once
#include <c10/core/StorageImpl.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "adapter/torch/layer_tracker.h"
#include "adapter/torch/operator_table.h"
#include "adapter/torch/recipes.h"
#include "adapter/torch/watched.h"
#include "vedette/session.h"

namespace at {
class Tensor;
struct ObserverContext;
}  // namespace at

namespace vedette::adapter {

class GpuStorages;

struct Announcer {  // the callback's state; one per guard
  Session& session;
  Watched& watched;
  LayerTracker& layers;
  OperatorTable table = {};
  Recipes recipes = {};
  Bytes chunk = {};            // of the session
  GpuStorages* gpu = nullptr;  // of a guard of GPU memory
  // While it is there: parameters that operators use and that are no session's, and their bytes.
  std::unique_ptr<std::map<const c10::StorageImpl*, Bytes>> unwatched = nullptr;
  bool in_step = false;  // between steps operands are announced, layers are not
};

// While it lives, tensors that this thread's operators make as optimizers do are an optimizer's, though a backward pass
// runs.
class OptimizerSteps {
 public:
  OptimizerSteps() noexcept;
  ~OptimizerSteps();
  OptimizerSteps(const OptimizerSteps&) = delete;
  OptimizerSteps& operator=(const OptimizerSteps&) = delete;
};

// An op that is no operator of libtorch's: a kernel that was made for the program, and is called with these tensors.
// Under a guard of GPU memory it holds them, as an operator does, inside of another op and on a thread that does not
// train. Under one of the CPU's it does nothing there.
class KernelOp {
 public:
  // `writes` are read, too. Throws as an operator does that finds no room.
  KernelOp(const std::string& name, std::span<const at::Tensor> reads, std::span<const at::Tensor> writes);
  ~KernelOp();
  KernelOp(const KernelOp&) = delete;
  KernelOp& operator=(const KernelOp&) = delete;

 private:
  std::unique_ptr<at::ObserverContext> context_;
};

enum class Listening : std::uint8_t { off, to_operands, to_operands_and_results };
void listen_to_operators(Listening what);  // while a guard lives
// Operators of a guard of GPU memory that rests are announced again, from the next one on.
void hear_operators_of_gpu(Session& session);
// The same in an operator that was not heard: nothing moves before it has ended, as far as autograd shows it.
void hear_operators_after_this(Session& session);

// From now on this thread's operators go to `announcer`, which is borrowed until stop_announcing().
void announce_this_thread(Announcer& announcer);
// The operators of this thread are announced: it trains, or runs nodes of the training's backward pass on a GPU.
bool announces_this_thread() noexcept;
// An op of this thread runs, or an operator that holds its operands: they are in place.
bool in_op_of_this_thread() noexcept;
// This is the thread whose operators are announced, and none of them runs.
bool is_between_ops_of_its_own() noexcept;
// See Watched. For any program that has these two tensors.
void without_weak_references(std::span<c10::TensorImpl* const> tensors, const std::function<void()>& work);
void stop_announcing(const Announcer& announcer);  // nothing, where another one has taken its place

}  // namespace vedette::adapter
