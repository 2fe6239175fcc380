// Data parallel training by the ranks of a job: processes that torchrun starts, on one machine or more.
//
// A rank has a copy of the model, a part of every batch and, if it wants, a guard of its own. libtorch's own c10d and
// gloo carry the bytes, or NCCL those of GPUs (Ranks::use()); no Python is needed.
//
//   torchrun --no-python --nproc-per-node 2 ./program
//
//   vedette::Ranks ranks;                                        // from torchrun's environment
//   ranks.broadcast(*model);                                     // all ranks begin with rank 0's
//   vedette::DataParallel parallel(ranks, optimizer);
//   for (...) {
//     auto step = guard.step();
//     auto loss = loss_of(*model, batch_of(i, ranks.rank()));
//     parallel.step([&] { loss.backward(); });                   // in place of backward, step and zero_grad
//   }
//
// Thread rule: the training thread. Errors: Failure, whose message is one sentence; a lost rank is c10d's exception,
// after which the process should end: torchrun starts the job again, and Checkpoints knows where it was.
#pragma once
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vedette/torch.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Store;
}  // namespace c10d

namespace vedette {

// The processes of a job, and this one among them. The environment is read as PyTorch's env:// does: RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT; GLOO_SOCKET_IFNAME names a network interface. Without RANK and WORLD_SIZE the job is this
// process alone, and nothing is sent.
class Ranks {
 public:
  // `patience`: how long a rank waits for another; a paged step of the slowest rank has to fit.
  explicit Ranks(std::chrono::seconds patience = std::chrono::minutes(30));
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // All ranks take rank 0's parameters and buffers. Before or after Guard::watch().
  void broadcast(torch::nn::Module& module);
  double mean(double value);  // over all ranks; of losses, for instance
  void barrier();
  // From now on tensors of such a device go by this backend, as GPUs' by a c10d::ProcessGroupNCCL that the program
  // makes of store(), rank() and size(); tensors of the CPU go by gloo. All ranks call it, before broadcast(). Under a
  // guard of GPU memory its works are ordered by streams, as NCCL's are. A job of one has no use for it.
  void use(c10::DeviceType device, c10::intrusive_ptr<c10d::Backend> backend);
  // Through which the ranks found each other, for keys of the backend's own; empty in a job of one.
  c10::intrusive_ptr<c10d::Store> store() const;
  // libtorch's own, for other collectives; empty in a job of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const noexcept { return group_; }

 private:
  int rank_ = 0, size_ = 1;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

struct DataParallelOptions {
  // A parameter is updated when this many later gradients are complete, by when its own has been reduced. A fixed lag
  // keeps the order of ops the same in every step, which plans depend on.
  std::uint32_t lag = 2;
  // ZeRO-1 (Rajbhandari et al., SC 2020, section 5.1): each parameter has one owner, which alone has its optimizer
  // state and updates it; the others get the new value. Ranks of one machine then move the state once, not each.
  bool shard_optimizer = false;
  bool per_parameter = false;  // as StepInBackwardOptions have it
};

// Trains with the mean of all ranks' gradients. Gradients are reduced one by one as backward completes them, and each
// is freed when its parameter has been updated: there are no buckets, and no second copy of all gradients.
//
// The result has the same bits with and without a guard, with any budget and any lag. All ranks reduce in the order in
// which rank 0's first pass completed them. A parameter that a later pass of one rank does not reach counts there as a
// gradient of zeros. A parameter that no first pass reached must stay without a gradient, or step() throws.
class DataParallel {
 public:
  // Both are borrowed. Under a guard, opened before or after, gradients on their way are pinned.
  DataParallel(Ranks& ranks, torch::optim::Optimizer& optimizer, DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Replaces `backward(); optimizer.step(); optimizer.zero_grad();`. All ranks call it equally often. Gradients that
  // earlier passes accumulated count: call loss.backward() alone for all parts of a batch but the last. It refuses the
  // same optimizers and hooks as step_in_backward(). After an exception the ranks are out of step, and the job has to
  // end.
  void step(const std::function<void()>& backward);
  // The same without the updates: afterwards each gradient is the mean of all ranks', and stays. For a step that looks
  // at all gradients first, as a scaler's of mixed precision does. Throws with a sharded optimizer, where the owner
  // alone has the mean.
  void reduce(const std::function<void()>& backward);

  bool owns(const at::Tensor& parameter) const;  // this rank updates it

 private:
  class Pass;
  struct State;
  void pass(const std::function<void()>& backward, bool updates);
  std::unique_ptr<State> state_;
};

// A folder with all that a job needs to go on with the same bits: parameters, buffers, optimizer state and the
// generators of each rank. Ranks of several machines share the folder. A job that is killed while it writes goes on
// from the checkpoint before.
class Checkpoints {
 public:
  Checkpoints(Ranks& ranks, std::string folder);
  // Tensors of the training that are in neither, as a scaler's state is: as many in each call, in the same order.
  using Others = std::vector<at::Tensor>;
  // Of `steps` steps that are done. All ranks call it. Afterwards older checkpoints are gone.
  void save(torch::nn::Module& module, torch::optim::Optimizer& optimizer, std::int64_t steps,
            const Others& others = {});
  // The number of steps that the loaded checkpoint had done; nullopt, and nothing is changed, where there is none.
  // Before Guard::watch(). Throws where the checkpoint is of another number of ranks, or a part of it is missing.
  std::optional<std::int64_t> load(torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                                   const Others& others = {});

 private:
  std::string path_of(std::int64_t steps) const;
  Ranks& ranks_;
  std::string folder_;
};

}  // namespace vedette
