// This process among the ranks of a data parallel training, by the environment that torchrun or `train --ranks` makes.
// Alone it changes nothing. Thread rule: the training thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "models/model.h"
#include "run.h"
#include "vedette/distributed.h"

namespace vedette::examples {

class Job {
 public:
  explicit Job(const RunOptions& options) : options_(options) {}

  // All ranks have one model from now on, from a checkpoint if there is one, and train it together. Before
  // Guard::watch().
  void join(Model& model);
  std::int64_t first_step() const noexcept { return first_step_; }
  std::int64_t batch_of(std::int64_t step) const noexcept { return step * ranks_.size() + ranks_.rank(); }
  void stepped(Model& model, std::int64_t step);  // it may be time for a checkpoint

 private:
  const RunOptions& options_;
  Ranks ranks_;
  std::map<const torch::optim::Optimizer*, std::unique_ptr<DataParallel>> parallel_;
  std::optional<Checkpoints> checkpoints_;
  std::int64_t first_step_ = 0;
};

}  // namespace vedette::examples
