// The programs: see irregular_programs.h.
#include "irregular_programs.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace vedette::bench {

namespace nn = torch::nn;

void Run::watch(nn::Module& module, const std::string& name) {
  if (guard != nullptr) guard->watch(module, name);
}
void Run::watch(torch::optim::Optimizer& optimizer) {
  if (guard != nullptr) guard->watch(optimizer);
}
void Run::keep(const at::Tensor& loss) { losses.push_back(std::bit_cast<std::uint32_t>(loss.item<float>())); }
void Run::keep_bytes(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.cpu().contiguous();
  const auto* const bytes = static_cast<const unsigned char*>(whole.const_data_ptr());
  for (std::size_t i = 0; i < whole.nbytes(); ++i) bits = (bits ^ bytes[i]) * 0x100000001b3;  // FNV
}
void Run::keep(const nn::Module& module) {
  for (const auto& item : module.named_parameters()) keep_bytes(item.value());
}

namespace {

namespace F = nn::functional;
using torch::indexing::Slice;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

std::int64_t pick(const Run& run, std::int64_t real, std::int64_t small) { return run.small ? small : real; }

// --- transformers ----------------------------------------------------------------------------------------------------

struct Cache {  // of one layer
  at::Tensor keys, values;
};

struct Block : nn::Module {
  Block(std::int64_t width, std::int64_t heads_of_it)
      : heads(heads_of_it), qkv(width, 3 * width), out(width, width), up(width, 4 * width), down(4 * width, width) {
    first = register_module("first", nn::LayerNorm(nn::LayerNormOptions({width})));
    second = register_module("second", nn::LayerNorm(nn::LayerNormOptions({width})));
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x, Cache* cache, bool causal) {
    const auto split = [&](const at::Tensor& t) {
      return t.view({t.size(0), t.size(1), heads, t.size(2) / heads}).transpose(1, 2);
    };
    const auto parts = qkv->forward(first->forward(x)).chunk(3, -1);
    at::Tensor k = split(parts[1]), v = split(parts[2]);
    if (cache != nullptr) {
      cache->keys = k = cache->keys.defined() ? torch::cat({cache->keys, k}, 2) : k;
      cache->values = v = cache->values.defined() ? torch::cat({cache->values, v}, 2) : v;
    }
    const at::Tensor mixed =
        torch::scaled_dot_product_attention(split(parts[0]), k, v, {}, 0.0, causal && x.size(1) > 1);
    x = x + out->forward(mixed.transpose(1, 2).reshape(x.sizes()));
    return x + down->forward(torch::gelu(up->forward(second->forward(x))));
  }
  std::int64_t heads;
  nn::LayerNorm first{nullptr}, second{nullptr};
  nn::Linear qkv, out, up, down;
};

struct Transformer : nn::Module {
  struct Shape {
    std::int64_t words, width, layers, heads, positions;
    bool causal;
  };
  explicit Transformer(const Shape& s)
      : shape(s),
        words(s.words, s.width),
        places(s.positions, s.width),
        head(nn::LinearOptions(s.width, s.words).bias(false)) {
    register_module("words", words);
    register_module("places", places);
    register_module("head", head);
    for (std::int64_t l = 0; l < s.layers; ++l)
      blocks.push_back(register_module("block" + std::to_string(l), std::make_shared<Block>(s.width, s.heads)));
  }
  at::Tensor forward(const at::Tensor& text, std::vector<Cache>* caches = nullptr) {
    const std::int64_t before = caches != nullptr && caches->front().keys.defined() ? caches->front().keys.size(2) : 0;
    at::Tensor x = words->forward(text) + places->forward(torch::arange(before, before + text.size(1), text.device()));
    for (std::size_t l = 0; l < blocks.size(); ++l)
      x = blocks[l]->forward(x, caches != nullptr ? &(*caches)[l] : nullptr, shape.causal);
    return head->forward(x);
  }
  at::Tensor loss(const at::Tensor& text) {
    const at::Tensor scores = forward(text.index({Slice(), Slice(0, -1)}));
    return F::cross_entropy(scores.reshape({-1, shape.words}), text.index({Slice(), Slice(1)}).reshape({-1}));
  }
  Shape shape;
  nn::Embedding words, places;
  nn::Linear head;
  std::vector<std::shared_ptr<Block>> blocks;
};

at::Tensor next_word(Transformer& model, const at::Tensor& text, std::vector<Cache>& caches) {
  return model.forward(text, &caches).select(1, -1).argmax(-1, true);
}

// A step is a word: what is attended to grows by one.
void generate(Run& run) {
  Transformer model({.words = pick(run, 8192, 256),
                     .width = pick(run, 640, 64),
                     .layers = pick(run, 11, 2),
                     .heads = 8,
                     .positions = 512,
                     .causal = true});
  run.move(model);
  run.watch(model);
  const torch::NoGradGuard no_gradients;
  std::vector<Cache> caches(model.blocks.size());
  at::Tensor text = run.there(torch::randint(model.shape.words, {pick(run, 16, 4), pick(run, 64, 8)}, torch::kLong));
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] { text = next_word(model, text, caches); });
    run.keep_bytes(text);
  }
}

// Batches of lengths from 32 to 256, as they come; some words are masked.
void lengths(Run& run) {
  Transformer model({.words = pick(run, 8192, 256),
                     .width = pick(run, 512, 64),
                     .layers = pick(run, 6, 2),
                     .heads = 8,
                     .positions = 256,
                     .causal = false});
  run.move(model);
  AdamW adam(model.parameters(), AdamWOptions(1e-4));
  run.watch(model);
  run.watch(adam);
  std::mt19937 lengths(5);
  for (int i = 0; i < run.steps; ++i) {
    const std::int64_t length = 32 + static_cast<std::int64_t>(lengths() % 225);
    run.within([&] {
      const at::Tensor text = run.there(
          torch::randint(1, model.shape.words, {pick(run, 8, 2), run.small ? length / 4 : length}, torch::kLong));
      const at::Tensor masked = run.there(torch::rand(text.sizes())) < 0.15;
      const at::Tensor scores = model.forward(text.masked_fill(masked, 0)).reshape({-1, model.shape.words});
      const at::Tensor wanted = text.masked_fill(masked.logical_not(), -100).reshape({-1});
      const at::Tensor loss = F::cross_entropy(scores, wanted, F::CrossEntropyFuncOptions().ignore_index(-100));
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

// Training with a few words generated after every third step.
void train_and_generate(Run& run) {
  Transformer model({.words = pick(run, 8192, 256),
                     .width = pick(run, 384, 64),
                     .layers = pick(run, 6, 2),
                     .heads = pick(run, 6, 8),
                     .positions = 256,
                     .causal = true});
  run.move(model);
  AdamW adam(model.parameters(), AdamWOptions(3e-4));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      const at::Tensor text =
          run.there(torch::randint(model.shape.words, {pick(run, 8, 2), pick(run, 129, 17)}, torch::kLong));
      const at::Tensor loss = model.loss(text);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
      if (i % 3 != 2) return;
      const torch::NoGradGuard no_gradients;
      std::vector<Cache> caches(model.blocks.size());
      at::Tensor words = text.index({Slice(0, 2), Slice(0, 8)});
      for (int n = 0; n < 4 + i % 4; ++n) words = next_word(model, words, caches);
      run.keep_bytes(words);
    });
  }
  run.keep(model);
}

// --- experts ---------------------------------------------------------------------------------------------------------

struct Experts : nn::Module {
  Experts(std::int64_t width, std::int64_t wide) : gate(width, count) {
    register_module("gate", gate);
    for (int e = 0; e < count; ++e)
      experts.push_back(register_module("expert" + std::to_string(e),
                                        nn::Sequential(nn::Linear(width, wide), nn::GELU(), nn::Linear(wide, width))));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto [weight, chosen] = torch::topk(gate->forward(x).softmax(-1), 2, -1);
    at::Tensor out = torch::zeros_like(x);
    for (int e = 0; e < count; ++e) {
      const at::Tensor where = torch::nonzero(chosen == e);
      if (where.size(0) == 0) continue;  // nobody chose it
      const at::Tensor rows = where.select(1, 0);
      const at::Tensor part = experts[static_cast<std::size_t>(e)]->forward(x.index_select(0, rows));
      out = out.index_add(0, rows, part * weight.index({rows, where.select(1, 1)}).unsqueeze(1));
    }
    return x + out;
  }
  static constexpr int count = 8;
  nn::Linear gate;
  std::vector<nn::Sequential> experts;
};

// How many words each expert gets is drawn; now and then one gets none.
void experts(Run& run) {
  const std::int64_t width = pick(run, 512, 64), words = pick(run, 8192, 256);
  nn::Module model("experts");
  auto embedding = model.register_module("embedding", nn::Embedding(words, width));
  auto head = model.register_module("head", nn::Linear(width, words));
  std::vector<std::shared_ptr<Experts>> layers;
  for (int l = 0; l < 2; ++l)
    layers.push_back(model.register_module("layer" + std::to_string(l), std::make_shared<Experts>(width, 4 * width)));
  run.move(model);
  Adam adam(model.parameters(), AdamOptions(1e-3));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      const at::Tensor text = run.there(torch::randint(words, {i % 5 == 4 ? 3 : pick(run, 1024, 48)}, torch::kLong));
      at::Tensor x = embedding->forward(text);
      for (auto& layer : layers) x = layer->forward(x);
      const at::Tensor loss = F::cross_entropy(head->forward(x), text.roll(1));
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

// --- perceptrons -----------------------------------------------------------------------------------------------------

nn::Sequential perceptron(std::int64_t in, std::int64_t width, int layers, std::int64_t out) {
  nn::Sequential net(nn::Linear(in, width), nn::ReLU());
  for (int l = 1; l < layers; ++l) {
    net->push_back(nn::Linear(width, width));
    net->push_back(nn::ReLU());
  }
  net->push_back(nn::Linear(width, out));
  return net;
}

// A batch that grows at every step.
void growing_batch(Run& run) {
  const std::int64_t width = pick(run, 1536, 96);
  nn::Sequential net = perceptron(width, width, 8, 10);
  run.move(*net);
  Adam adam(net->parameters(), AdamOptions(1e-4));
  run.watch(*net);
  run.watch(adam);
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      const std::int64_t batch = pick(run, 256, 32) + i * pick(run, 32, 4);
      const at::Tensor data = run.there(torch::randn({batch, width}));
      const at::Tensor wanted = run.there(torch::randint(10, {batch}, torch::kLong));
      const at::Tensor loss = F::cross_entropy(net->forward(data), wanted);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(*net);
}

// Q-learning from a memory of frames, of which rows are drawn; some steps act alone, every eighth copies the target.
void replay_buffer(Run& run) {
  const std::int64_t seen = pick(run, 2048, 128), width = pick(run, 1536, 96), places = pick(run, 8192, 256);
  nn::Sequential q = perceptron(seen, width, 4, 6), target = perceptron(seen, width, 4, 6);
  run.move(*q);
  run.move(*target);
  Adam adam(q->parameters(), AdamOptions(1e-4));
  run.watch(*q, "q");
  run.watch(*target, "target");
  run.watch(adam);
  at::Tensor frames, state;
  run.within([&] {
    frames = run.there(torch::randn({places, seen}));
    state = run.there(torch::randn({1, seen}));
  });
  std::mt19937 draw(3);
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      {
        const torch::NoGradGuard no_gradients;
        for (unsigned n = 0; n < 1 + draw() % 4; ++n) {
          const at::Tensor action = q->forward(state).argmax(1);
          state = 0.9 * state.roll(1, 1) + 0.1 * run.there(torch::randn({1, seen})) + 0.01 * action;
          frames[static_cast<std::int64_t>(draw() % static_cast<unsigned>(places))].copy_(state[0]);
        }
      }
      if (i % 4 == 3) return;
      const at::Tensor rows = run.there(torch::randint(places - 1, {pick(run, 256, 32)}, torch::kLong));
      at::Tensor wanted;
      {
        const torch::NoGradGuard no_gradients;
        wanted = std::get<0>(target->forward(frames.index_select(0, rows + 1)).max(1));
      }
      const at::Tensor values = std::get<0>(q->forward(frames.index_select(0, rows)).max(1));
      const at::Tensor loss = F::smooth_l1_loss(values, 0.95 * wanted + 0.1);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
      if (i % 8 != 6) return;
      const torch::NoGradGuard no_gradients;
      const auto from = q->parameters(), to = target->parameters();
      for (std::size_t p = 0; p < from.size(); ++p) to[p].copy_(from[p]);
    });
  }
  run.keep(*q);
}

// Meta-learning: a task's steps are differentiated; how many tasks and inner steps there are is drawn.
void meta_learning(Run& run) {
  const std::int64_t width = pick(run, 1280, 96);
  nn::Sequential net = perceptron(64, width, 3, 8);
  run.move(*net);
  Adam adam(net->parameters(), AdamOptions(1e-3));
  run.watch(*net);
  run.watch(adam);
  const auto forward = [](const std::vector<at::Tensor>& w, at::Tensor x) {
    for (std::size_t l = 0; l + 2 < w.size(); l += 2) x = torch::relu(F::linear(x, w[l], w[l + 1]));
    return F::linear(x, w[w.size() - 2], w[w.size() - 1]);
  };
  std::mt19937 draw(7);
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      adam.zero_grad();
      at::Tensor total = run.there(torch::zeros({}));
      const auto tasks = static_cast<unsigned>(1 + draw() % 3);
      for (unsigned task = 0; task < tasks; ++task) {
        const at::Tensor x = run.there(torch::randn({pick(run, 128, 16), 64})), wanted = torch::sin(x.slice(1, 0, 8));
        std::vector<at::Tensor> fast = net->parameters();
        for (unsigned inner = 0; inner < 1 + draw() % 2; ++inner) {
          const auto slopes = torch::autograd::grad({F::mse_loss(forward(fast, x), wanted)}, fast, {}, true, true);
          for (std::size_t p = 0; p < fast.size(); ++p) fast[p] = fast[p] - 0.01 * slopes[p];
        }
        total = total + F::mse_loss(forward(fast, x), wanted);
      }
      total.backward();
      adam.step();
      run.keep(total);
    });
  }
  run.keep(*net);
}

// A neural differential equation: how many steps its solver takes depends on the numbers.
void adaptive_solver(Run& run) {
  const std::int64_t width = pick(run, 1536, 96);
  nn::Sequential field(nn::Linear(width, width), nn::Tanh(), nn::Linear(width, width));
  run.move(*field);
  Adam adam(field->parameters(), AdamOptions(1e-3));
  run.watch(*field);
  run.watch(adam);
  const at::Tensor begin = run.there(torch::randn({pick(run, 256, 32), width})),
                   end = run.there(torch::randn({pick(run, 256, 32), width}));
  for (int i = 0; i < run.steps; ++i) {
    run.within([&] {
      at::Tensor x = begin;
      double t = 0, h = 0.3;
      while (t < 1) {
        h = std::min(h, 1 - t);
        const at::Tensor k1 = field->forward(x), k2 = field->forward(x + h * k1);
        const double error = (0.5 * h * (k2 - k1)).detach().abs().max().item<double>();
        if (error > 0.02 && h > 0.05) {
          h *= 0.5;
          continue;
        }
        x = x + 0.5 * h * (k1 + k2);
        t += h;
        h *= error < 0.01 ? 1.5 : 1.0;
      }
      const at::Tensor loss = F::mse_loss(x, end);
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(*field);
}

}  // namespace

const std::vector<Program>& irregular_programs() {
  static const std::vector<Program> programs{
      {"generate", "a GPT of 65 M parameters generates, with a cache of keys and values", generate},
      {"lengths", "BERT, batches of lengths from 32 to 256, unsorted", lengths},
      {"experts", "mixture of experts, the best 2 of 8", experts},
      {"growing_batch", "a batch that grows at every step", growing_batch},
      {"replay_buffer", "Q-learning from a memory of frames", replay_buffer},
      {"meta_learning", "MAML with tasks and inner steps that vary", meta_learning},
      {"train_and_generate", "a GPT that generates after every third step", train_and_generate},
      {"adaptive_solver", "a neural differential equation", adaptive_solver}};
  return programs;
}

}  // namespace vedette::bench
