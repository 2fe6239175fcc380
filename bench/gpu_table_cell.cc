// The decoder, the ways in which it is trained, and what is measured: see gpu_table_cell.h.
#include "gpu_table_cell.h"

#include <dlfcn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>
#include <vedette/bound.h>
#include <vedette/torch.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "device.h"
#include "energy.h"
#include "gpu_managed.h"
#include "models/made_up_data.h"
#include "models/mixed_precision.h"
#include "models/model.h"

namespace vedette::bench {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

struct BlockImpl : nn::Module {
  explicit BlockImpl(const DecoderShape& s)
      : shape(s),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({s.width})))),
        attention(register_module("attention", nn::Linear(s.width, 3 * s.width))),
        projection(register_module("projection", nn::Linear(s.width, s.width))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({s.width})))),
        up(register_module("up", nn::Linear(s.width, 4 * s.width))),
        down(register_module("down", nn::Linear(4 * s.width, s.width))) {}

  Tensor attend(const Tensor& x, const Tensor& future) {
    const auto n = x.size(0), length = x.size(1), each = shape.width / shape.heads;
    const auto parts = attention(x).view({n, length, 3, shape.heads, each}).permute({2, 0, 3, 1, 4}).unbind();
    Tensor mixed;
    if (shape.fused) {
      mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    } else {
      const auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(each));
      mixed = torch::matmul(scores.masked_fill(future, -INFINITY).softmax(-1), parts[2]);
    }
    return projection(mixed.transpose(1, 2).reshape({n, length, shape.width}));
  }
  Tensor forward(Tensor x, const Tensor& future) {
    x = x + attend(norm1(x), future);
    return x + down(torch::gelu(up(norm2(x))));
  }

  const DecoderShape shape;
  nn::LayerNorm norm1;
  nn::Linear attention, projection;
  nn::LayerNorm norm2;
  nn::Linear up, down;
};
TORCH_MODULE(Block);

// Activation checkpointing: a block keeps its input alone, and is recomputed in the backward pass.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& future,
                        std::int64_t block) {
    context->save_for_backward({x, future});
    context->saved_data["block"] = block;
    return of(block)->forward(x, future);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto block = context->saved_data["block"].toInt();
    const Tensor x = saved[0].detach().requires_grad_(true);
    const at::AutoGradMode with_gradients(true);
    Tensor y;
    {
      const examples::Autocast autocast(at::kCUDA, of(block)->shape.bf16);
      y = of(block)->forward(x, saved[1]);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), Tensor(), Tensor()};
  }
  static BlockImpl* of(std::int64_t block) { return reinterpret_cast<BlockImpl*>(block); }
};

struct DecoderImpl : nn::Module {
  DecoderImpl(const DecoderShape& s, bool recompute)
      : recomputes(recompute),
        token(register_module("token", nn::Embedding(s.symbols, s.width))),
        position(register_module("position", nn::Embedding(s.context, s.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.width})))),
        head(register_module("head", nn::Linear(nn::LinearOptions(s.width, s.symbols).bias(false)))) {
    for (std::int64_t i = 0; i < s.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), Block(s)));
    future = register_buffer("future", torch::ones({s.context, s.context}, torch::kBool).triu(1));
  }
  Tensor forward(const Tensor& symbols) {
    auto x = token(symbols) + position(torch::arange(symbols.size(1), symbols.options()));
    for (auto& block : blocks) {
      x = recomputes ? Recomputed::apply(x, future, reinterpret_cast<std::int64_t>(block.get())) : block(x, future);
    }
    return head(norm(x));
  }
  const bool recomputes;
  nn::Embedding token, position;
  nn::LayerNorm norm;
  nn::Linear head;
  std::vector<Block> blocks;
  Tensor future;
};
TORCH_MODULE(Decoder);

// What torch.autograd.graph.save_on_cpu(pin_memory=True) does: each saved tensor has a copy in pinned memory instead.
struct InPinnedMemory final : torch::autograd::SavedVariableHooks {
  void call_pack_hook(const Tensor& tensor) override {
    device = tensor.device();
    packed = tensor;
    if (device.is_cpu()) return;
    packed = at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    packed.copy_(tensor);
  }
  Tensor call_unpack_hook() override { return device.is_cpu() ? packed : packed.to(device, /*non_blocking=*/true); }
  at::Device device = at::kCPU;
  Tensor packed;
};

struct SavingEngine final : torch::autograd::Engine {
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return std::make_unique<InPinnedMemory>();
  }
  static torch::autograd::Engine& get() {
    static auto* const engine = new SavingEngine;  // its threads live as long as the process
    return *engine;
  }
};

class MachineSeen final : public Observer {
 public:
  void opened(const Machine& m, std::string_view, Bytes, Bytes) override { machine = m; }
  Machine machine;
};

class Training {
 public:
  explicit Training(const CellOptions& options) : options_(options) {
    torch::manual_seed(1);
    const DecoderShape& s = options.shape;
    if (options.model != "decoder") {
      examples::use_made_up_data();
      model_ = examples::make_model(options.model, {.batch = s.batch, .small = options.small});
      if (model_ == nullptr) throw std::runtime_error("there is no model '" + options.model + "'");
      return;
    }
    net_ = Decoder(s, options.way == "checkpoint");
    text_ = torch::randint(s.symbols, {1 << 16}, torch::kLong);
  }
  void move() { module().to(at::kCUDA); }
  void start() {
    if (model_ == nullptr)
      adam_ = std::make_unique<torch::optim::AdamW>(net_->parameters(), torch::optim::AdamWOptions(3e-4));
  }
  nn::Module& module() { return model_ == nullptr ? *net_ : model_->module(); }

  // The step ends when the device has its loss.
  float step(std::int64_t number) {
    torch::optim::Optimizer& optimizer = model_ == nullptr ? *adam_ : model_->optimizer();
    optimizer.zero_grad();
    Tensor loss;
    {
      const examples::Autocast autocast(at::kCUDA, options_.shape.bf16);
      loss = model_ == nullptr ? decoder_loss(number) : model_->loss(number, model_->batch());
    }
    loss.backward();
    optimizer.step();
    return loss.item<float>();
  }

 private:
  Tensor decoder_loss(std::int64_t number) {
    const DecoderShape& s = options_.shape;
    const std::int64_t count = s.batch * s.context, room = text_.size(0) - count - 1;
    const std::int64_t first = number * count % room;
    const auto here = [&](std::int64_t from) {
      return text_.slice(0, from, from + count).view({s.batch, s.context}).to(at::kCUDA);
    };
    return nn::functional::cross_entropy(net_(here(first)).flatten(0, 1), here(first + 1).flatten());
  }

  const CellOptions options_;
  Decoder net_{nullptr};
  std::unique_ptr<examples::Model> model_;  // instead of the decoder
  std::unique_ptr<torch::optim::AdamW> adam_;
  Tensor text_;
};

struct Ran {
  std::vector<double> ms;
  std::vector<std::uint32_t> losses;
  std::optional<double> joules;  // a step
};

template <class BeginStep>
Ran run(const CellOptions& options, Training& training, const BeginStep& begin) {
  const examples::Energy energy("cuda");
  Ran ran;
  std::optional<std::uint64_t> before;
  for (int s = 0; s < options.warm_up + options.steps; ++s) {
    if (s == options.warm_up) before = energy.millijoules();
    const auto began = std::chrono::steady_clock::now();
    float loss = 0;
    {
      [[maybe_unused]] const auto scope = begin();
      loss = training.step(s);
    }
    ran.losses.push_back(std::bit_cast<std::uint32_t>(loss));
    if (s < options.warm_up) continue;
    ran.ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  const auto after = energy.millijoules();
  if (before && after) ran.joules = static_cast<double>(*after - *before) / 1e3 / options.steps;
  return ran;
}

nlohmann::json told(const CellOptions& options, const Ran& ran, std::uint64_t peak) {
  nlohmann::json json{{"way", options.way}, {"budget", options.budget}, {"step_ms", ran.ms},
                      {"peak_bytes", peak}, {"losses", ran.losses},     {"joules", nullptr}};
  if (ran.joules) json["joules"] = *ran.joules;
  return json;
}

nlohmann::json guarded(const CellOptions& options, Training& training) {
  MachineSeen seen;
  const bool bound = options.way == "bound";
  GuardOptions choice{.fast_memory = {options.budget},
                      .fast = "gpu:0",
                      .slow = options.slow,
                      .recompute = options.recompute ? Recompute::planned : Recompute::off};
  if (bound) choice.observer = &seen;
  Guard guard{choice};
  training.move();
  training.start();
  guard.watch(training.module());
  Counters before;  // the counted steps
  int steps = 0;
  const Ran ran = run(options, training, [&] {
    if (steps++ == options.warm_up) before = guard.counters();
    return guard.step();
  });
  const Counters counters = guard.counters();
  nlohmann::json json = told(options, ran, counters.peak_bytes.value);
  json["phase"] = guard.session().phase();
  json["mechanism"] = guard.session().mechanism();
  json["resident_max_bytes"] = counters.resident_max_bytes.value;
  json["recompute"] = options.recompute;
  const auto of_a_step = [&](std::uint64_t Counters::*counter) {
    return (counters.*counter - before.*counter) / static_cast<std::uint64_t>(options.steps);
  };
  const auto bytes_of_a_step = [&](Bytes Counters::*counter) {
    return (counters.*counter - before.*counter).value / static_cast<std::uint64_t>(options.steps);
  };
  json["bytes_in"] = bytes_of_a_step(&Counters::bytes_in);
  json["bytes_out"] = bytes_of_a_step(&Counters::bytes_out);
  json["bytes_recomputed"] = bytes_of_a_step(&Counters::bytes_recomputed);
  json["ops_recomputed"] = of_a_step(&Counters::ops_recomputed);
  json["recompute_ns"] = of_a_step(&Counters::recompute_ns);
  json["stall_ns"] = of_a_step(&Counters::stall_ns);
  if (!bound) return json;
  for (const PlannedStep& planned : guard.session().planned_steps()) {
    if (options.budget > 0) seen.machine.tiers[0].capacity = {options.budget};
    Nanoseconds ideal;
    for (const Op& op : planned.trace.ops) ideal += op.time;
    json["ideal_ms"] = static_cast<double>(ideal.value) / 1e6;
    json["bound_ms"] = static_cast<double>(lower_bound(planned.trace, seen.machine).value) / 1e6;
  }
  return json;
}

ManagedMemory& use_managed_memory() {
  constexpr const char* library = "libgpu_table_managed.so";
  void* const opened = ::dlopen(library, RTLD_NOW | RTLD_GLOBAL);
  void* const use = opened == nullptr ? nullptr : ::dlsym(opened, "gpu_table_use_managed_memory");
  if (use == nullptr)
    throw std::runtime_error(std::string(library) + " cannot be loaded (" + ::dlerror() +
                             "); build it with a libtorch for CUDA and CUDA's headers");
  return *reinterpret_cast<decltype(&gpu_table_use_managed_memory)>(use)();
}

// What libraries load for their kernels is loaded by two steps of a smaller model, before the rest of the device is
// held back: a guard's budget does not count it either.
nlohmann::json in_managed_memory(const CellOptions& options) {
  ManagedMemory& memory = use_managed_memory();
  {
    CellOptions few = options;
    few.shape.layers = 1;
    few.shape.batch = 2;
    Training training(few);
    training.move();
    training.start();
    for (const int number : {0, 1}) training.step(number);
  }
  const std::uint64_t held = memory.leave_free(options.budget);
  Training training(options);
  training.move();
  training.start();
  ManagedMemory::Counts before;
  int steps = 0;
  const Ran ran = run(options, training, [&] {
    if (steps++ == options.warm_up) before = memory.counts();
    memory.begin_step();
    return 0;
  });
  const ManagedMemory::Counts after = memory.counts();
  const auto count = static_cast<std::uint64_t>(options.steps);
  nlohmann::json json = told(options, ran, examples::device_peak_bytes());
  json["held_back_bytes"] = held;
  json["segment_bytes"] = after.segment_bytes;
  json["prefetches"] = (after.prefetches - before.prefetches) / count;
  json["bytes_prefetched"] = (after.prefetched_bytes - before.prefetched_bytes) / count;
  json["prefetches_refused"] = after.refused;
  return json;
}

}  // namespace

nlohmann::json run_cell(const CellOptions& options) {
  if (options.deterministic) examples::use_deterministic_algorithms();
  examples::prepare_device("cuda");
  if (options.way == "save_on_cpu") torch::autograd::set_default_engine_stub(&SavingEngine::get);
  if (options.way == "managed") return in_managed_memory(options);
  Training training(options);
  if (options.way == "guard" || options.way == "bound") return guarded(options, training);
  if (options.way != "plain" && options.way != "save_on_cpu" && options.way != "checkpoint")
    throw std::runtime_error("there is no way '" + options.way +
                             "'; use plain, guard, bound, managed, save_on_cpu or checkpoint");
  training.move();
  training.start();
  const Ran ran = run(options, training, [] { return 0; });
  return told(options, ran, examples::device_peak_bytes());
}

}  // namespace vedette::bench
