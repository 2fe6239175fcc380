// Data parallel training with a fixed lag between a gradient and its update: see DataParallel in vedette/distributed.h.
//
// Invariant: all ranks begin the same collectives in the same order, that of State::order, whatever order their own
// passes complete gradients in.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "adapter/torch/collective.h"
#include "adapter/torch/gradient_hooks.h"
#include "vedette/distributed.h"

namespace vedette {

using adapter::Collective;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

namespace {

std::vector<at::Tensor> parameters_of(Optimizer& optimizer) {
  std::vector<at::Tensor> all;
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

// Largest first, each to the rank that has least, as ZeroRedundancyOptimizer does.
std::vector<int> owners_of(const std::vector<at::Tensor>& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return parameters[a].numel() > parameters[b].numel(); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owners(parameters.size());
  for (const std::size_t number : order) {
    const auto least = std::min_element(load.begin(), load.end());
    owners[number] = static_cast<int>(least - load.begin());
    *least += parameters[number].numel();
  }
  return owners;
}

[[noreturn]] void refuse(std::string message) { throw Failure({Cause::unsupported, std::move(message), 0}); }

}  // namespace

struct DataParallel::State {
  Ranks& ranks;
  Optimizer& optimizer;
  DataParallelOptions options;
  std::vector<at::Tensor> parameters;
  std::vector<std::size_t> groups = {};  // of each parameter
  std::vector<int> owners = {};          // of each, where the optimizer's state is sharded
  std::vector<std::size_t> order = {};   // in which gradients are reduced, once a pass has been
  std::vector<bool> expected = {};       // which parameters are in it
  bool is_agreed = false, failed = false;
};

class DataParallel::Pass {
 public:
  Pass(State& state, bool updates) : state_(state), updates_(updates), complete_(state.parameters.size(), false) {}

  void complete(std::size_t number) {
    complete_[number] = true;
    if (!state_.is_agreed) return completed_.push_back(number);
    require_expected(number);
    while (next_ < state_.order.size() && complete_[state_.order[next_]]) reduce(state_.order[next_++]);
  }

  void finish() {
    if (!state_.is_agreed) agree();
    for (std::size_t number = 0; number < state_.parameters.size(); ++number)
      if (state_.parameters[number].grad().defined()) require_expected(number);
    while (next_ < state_.order.size()) reduce(state_.order[next_++]);
    while (!reducing_.empty()) update();
    while (!returning_.empty()) take_returned();
  }

 private:
  struct Reducing {
    std::size_t number;
    Collective gradient;
  };

  void require_expected(std::size_t number) const {
    if (!state_.expected[number])
      refuse(
          "a parameter got a gradient that no rank's first pass gave it, so the ranks would not reduce it together; "
          "let the first step reach all parameters");
  }

  // Rank 0's order of completion, and behind it the parameters that only other ranks' passes reached.
  void agree() {
    const auto count = static_cast<std::int64_t>(state_.parameters.size());
    at::Tensor places = at::full({count}, count, at::kLong);
    for (std::size_t i = 0; i < completed_.size(); ++i)
      places.data_ptr<std::int64_t>()[completed_[i]] = static_cast<std::int64_t>(i);
    at::Tensor reached = at::zeros({count}, at::kInt);
    for (std::size_t i = 0; i < state_.parameters.size(); ++i)
      reached.data_ptr<std::int32_t>()[i] = state_.parameters[i].grad().defined() ? 1 : 0;
    Collective::copy_from(state_.ranks, 0, places).wait();
    Collective::largest(state_.ranks, reached).wait();
    const std::int64_t* const place = places.const_data_ptr<std::int64_t>();
    state_.expected.assign(state_.parameters.size(), false);
    for (std::size_t i = 0; i < state_.parameters.size(); ++i) {
      state_.expected[i] = reached.const_data_ptr<std::int32_t>()[i] != 0;
      if (state_.expected[i]) state_.order.push_back(i);
    }
    std::stable_sort(state_.order.begin(), state_.order.end(),
                     [&](std::size_t a, std::size_t b) { return place[a] < place[b]; });
    state_.is_agreed = true;
  }

  bool is_mine(std::size_t number) const {
    return state_.owners.empty() || state_.owners[number] == state_.ranks.rank();
  }

  void reduce(std::size_t number) {
    at::Tensor& gradient = state_.parameters[number].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(state_.parameters[number]);
    if (gradient.layout() != at::kStrided)
      refuse("a gradient is sparse, and the ranks reduce dense ones; make the embedding with sparse(false)");
    if (state_.ranks.size() > 1) gradient.div_(state_.ranks.size());
    reducing_.push_back({number, state_.owners.empty()
                                     ? Collective::sum(state_.ranks, gradient)
                                     : Collective::sum_at(state_.ranks, state_.owners[number], gradient)});
    if (reducing_.size() > state_.options.lag) update();
  }

  void update() {
    Reducing reduced = std::move(reducing_.front());
    reducing_.pop_front();
    reduced.gradient.wait();
    if (!updates_) return;
    at::Tensor& parameter = state_.parameters[reduced.number];
    if (is_mine(reduced.number)) {
      adapter::step_one(state_.optimizer, parameter, state_.optimizer.param_groups()[state_.groups[reduced.number]]);
    } else {
      parameter.mutable_grad().reset();
    }
    if (state_.owners.empty()) return;
    returning_.push_back(Collective::copy_from(state_.ranks, state_.owners[reduced.number], parameter.detach()));
    if (returning_.size() > state_.options.lag) take_returned();
  }

  void take_returned() {
    returning_.front().wait();
    returning_.pop_front();
  }

  State& state_;
  const bool updates_;
  std::vector<bool> complete_;
  std::vector<std::size_t> completed_;  // in the first pass
  std::size_t next_ = 0;                // in State::order
  std::deque<Reducing> reducing_;
  std::deque<Collective> returning_;  // new values of parameters
};

DataParallel::DataParallel(Ranks& ranks, Optimizer& optimizer, DataParallelOptions options)
    : state_(new State{ranks, optimizer, options, parameters_of(optimizer)}) {
  adapter::refuse_to_step_in_backward(optimizer, options.per_parameter);
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group)
    state_->groups.insert(state_->groups.end(), optimizer.param_groups()[group].params().size(), group);
  if (options.shard_optimizer && ranks.size() > 1) state_->owners = owners_of(state_->parameters, ranks.size());
}

DataParallel::~DataParallel() = default;

void DataParallel::step(const std::function<void()>& backward) { pass(backward, true); }

void DataParallel::reduce(const std::function<void()>& backward) {
  if (!state_->owners.empty())
    refuse("each gradient of a sharded optimizer is reduced for its owner alone; leave shard_optimizer out, or step()");
  pass(backward, false);
}

void DataParallel::pass(const std::function<void()>& backward, bool updates) {
  State& state = *state_;
  if (state.failed) refuse("an earlier step of this job failed, and its ranks are out of step; end the process");
  if (parameters_of(state.optimizer).size() != state.parameters.size())
    refuse("the optimizer has other parameters than it had; make another DataParallel of it");
  adapter::refuse_to_step_in_backward(state.optimizer, state.options.per_parameter);
  state.failed = true;
  {
    Pass pass(state, updates);
    {
      const adapter::GradientHooks hooks(state.optimizer, [&](const adapter::GradientHooks::Parameter& parameter) {
        const at::NoGradGuard no_gradients;
        pass.complete(parameter.number);
      });
      backward();
    }
    const at::NoGradGuard no_gradients;
    pass.finish();
  }
  state.failed = false;
}

bool DataParallel::owns(const at::Tensor& parameter) const {
  for (std::size_t i = 0; i < state_->parameters.size(); ++i)
    if (state_->parameters[i].is_same(parameter))
      return state_->owners.empty() || state_->owners[i] == state_->ranks.rank();
  return false;
}

}  // namespace vedette
