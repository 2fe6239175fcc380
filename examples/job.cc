// A rank: see job.h.
#include "job.h"

#include <torch/utils.h>

#include <stdexcept>
#include <string>

namespace vedette::examples {

void Job::join(Model& model) {
  if (ranks_.size() > 1) {
    ranks_.broadcast(model.module());
    constexpr std::uint64_t apart = 1'000'003;  // dropout differs from rank to rank
    torch::manual_seed(options_.seed + apart * static_cast<std::uint64_t>(ranks_.rank()));
    for (torch::optim::Optimizer* const optimizer : model.optimizers())
      parallel_[optimizer] = std::make_unique<DataParallel>(
          ranks_, *optimizer, DataParallelOptions{.lag = options_.lag, .shard_optimizer = options_.shard_optimizer});
    model.use([this](torch::optim::Optimizer& optimizer, const std::function<void()>& backward) {
      DataParallel& parallel = *parallel_.at(&optimizer);
      options_.amp ? parallel.reduce(backward) : parallel.step(backward);
    });
  }
  if (options_.checkpoint.empty()) return;
  if (model.optimizers().size() > 1) throw std::runtime_error("--checkpoint is for models of one optimizer");
  checkpoints_.emplace(ranks_, options_.checkpoint);
  first_step_ = checkpoints_->load(model.module(), model.optimizer(), model.scaler_state()).value_or(0);
}

void Job::stepped(Model& model, std::int64_t step) {
  if (checkpoints_ && (step + 1) % options_.every == 0)
    checkpoints_->save(model.module(), model.optimizer(), step + 1, model.scaler_state());
}

}  // namespace vedette::examples
