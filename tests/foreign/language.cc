// Sequences.
#include <torch/nn.h>
#include <torch/optim.h>

#include "foreign/programs.h"

namespace vedette::test::foreign {
namespace {

namespace F = nn::functional;
using Adam = torch::optim::Adam;
using torch::indexing::Slice;

constexpr std::int64_t words = 500, length = 24, width = 96;

at::Tensor some_words(std::int64_t rows = batch, std::int64_t columns = length) {
  return torch::randint(words, {rows, columns}, torch::kLong);
}

// A recurrent language model whose decoder is its embedding; the hidden state goes on from batch to batch.
struct TiedLstm : nn::Module {
  TiedLstm() {
    register_module("embedding", embedding);
    register_module("lstm", lstm);
    register_module("dropout", dropout);
    bias = register_parameter("bias", torch::zeros({words}));
  }
  std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> forward(const at::Tensor& input,
                                                                     std::tuple<at::Tensor, at::Tensor> hidden) {
    auto [output, next] = lstm->forward(dropout->forward(embedding->forward(input)), std::move(hidden));
    return {F::linear(dropout->forward(output), embedding->weight, bias), next};
  }
  nn::Embedding embedding{words, width};
  nn::LSTM lstm{nn::LSTMOptions(width, width).num_layers(2).batch_first(true)};
  nn::Dropout dropout{0.2};
  at::Tensor bias;
};

void tied_lstm(Trial& run) {
  TiedLstm model;
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.5));
  run.watch(model);
  run.watch(sgd);
  std::tuple<at::Tensor, at::Tensor> hidden{torch::zeros({2, batch, width}), torch::zeros({2, batch, width})};
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor text = some_words(batch, length + 1);
      auto [scores, next] = model.forward(text.index({Slice(), Slice(0, length)}), hidden);
      const at::Tensor loss =
          F::cross_entropy(scores.reshape({-1, words}), text.index({Slice(), Slice(1)}).reshape({-1}));
      model.zero_grad();
      loss.backward();
      nn::utils::clip_grad_norm_(model.parameters(), 0.25);
      sgd.step();
      hidden = {std::get<0>(next).detach(), std::get<1>(next).detach()};
      run.keep(loss);
    });
  }
  run.keep(model);
}

// A transformer encoder that fills in masked words, with warm-up of the learning rate and batches of two lengths.
struct MaskedWords : nn::Module {
  MaskedWords() {
    register_module("embedding", embedding);
    register_module("encoder", encoder);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input, const at::Tensor& padding) {
    const at::Tensor x = embedding->forward(input).transpose(0, 1);
    return head->forward(encoder->forward(x, {}, padding).transpose(0, 1));
  }
  nn::Embedding embedding{words, width};
  nn::TransformerEncoder encoder{nn::TransformerEncoderOptions(
      nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(2 * width).dropout(0.1), 3)};
  nn::Linear head{width, words};
};

void masked_words(Trial& run) {
  MaskedWords model;
  torch::optim::AdamW adam(model.parameters(), torch::optim::AdamWOptions(1e-3));
  torch::optim::StepLR schedule(adam, 2, 0.7);
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < 2 * steps; ++i) {
    run.within([&] {
      const std::int64_t columns = i % 4 == 3 ? length / 2 : length;
      at::Tensor text = some_words(batch, columns);
      const at::Tensor masked = torch::rand({batch, columns}) < 0.15;
      at::Tensor padding = torch::zeros({batch, columns}, torch::kBool);
      padding.index_put_({Slice(), columns - 1}, true);
      const at::Tensor scores = model.forward(text.masked_fill(masked, 0), padding);
      const at::Tensor loss = F::cross_entropy(scores.index({masked}), text.index({masked}));
      adam.zero_grad();
      loss.backward();
      adam.step();
      schedule.step();
      run.keep(loss);
    });
  }
  run.keep(model);
  run.keep(adam);
}

// Experts of which each word uses the two best.
struct Experts : nn::Module {
  Experts() {
    register_module("embedding", embedding);
    register_module("gate", gate);
    register_module("experts", experts);
    register_module("head", head);
    for (int e = 0; e < count; ++e)
      experts->push_back(nn::Sequential(nn::Linear(width, 4 * width), nn::GELU(), nn::Linear(4 * width, width)));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = embedding->forward(input).reshape({-1, width});
    auto [weight, chosen] = torch::topk(gate->forward(x).softmax(-1), 2, -1);
    at::Tensor out = torch::zeros_like(x);
    for (int e = 0; e < count; ++e) {
      const at::Tensor where = torch::nonzero(chosen == e);
      if (where.size(0) == 0) continue;
      const at::Tensor rows = where.select(1, 0);
      const at::Tensor part =
          experts[static_cast<std::size_t>(e)]->as<nn::Sequential>()->forward(x.index_select(0, rows));
      out = out.index_add(0, rows, part * weight.index({rows, where.select(1, 1)}).unsqueeze(1));
    }
    return head->forward(x + out);
  }
  static constexpr int count = 6;
  nn::Embedding embedding{words, width};
  nn::Linear gate{width, count}, head{width, words};
  nn::ModuleList experts;
};

void mixture_of_experts(Trial& run) {
  Experts model;
  Adam adam(model.parameters(), torch::optim::AdamOptions(1e-3));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor text = some_words();
      const at::Tensor loss = F::cross_entropy(model.forward(text), text.roll(1, 1).reshape({-1}));
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

// Attention with a cache of keys and values that grows by a word, between training steps.
struct Generator : nn::Module {
  Generator() {
    register_module("embedding", embedding);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input, at::Tensor* keys = nullptr, at::Tensor* values = nullptr) {
    const at::Tensor x = embedding->forward(input);
    const auto parts = qkv->forward(x).chunk(3, -1);
    at::Tensor k = parts[1], v = parts[2];
    if (keys != nullptr) {
      *keys = k = keys->defined() ? torch::cat({*keys, k}, 1) : k;
      *values = v = values->defined() ? torch::cat({*values, v}, 1) : v;
    }
    const at::Tensor mixed = torch::scaled_dot_product_attention(parts[0].unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1),
                                                                 {}, 0.0, keys == nullptr);
    return head->forward(x + out->forward(mixed.squeeze(1)));
  }
  nn::Embedding embedding{words, width};
  nn::Linear qkv{width, 3 * width}, out{width, width}, head{width, words};
};

void generate_with_a_cache(Trial& run) {
  Generator model;
  Adam adam(model.parameters(), torch::optim::AdamOptions(1e-3));
  run.watch(model);
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor text = some_words();
      const at::Tensor loss =
          F::cross_entropy(model.forward(text).reshape({-1, words}), text.roll(-1, 1).reshape({-1}));
      adam.zero_grad();
      loss.backward();
      adam.step();
      run.keep(loss);
    });
    run.within([&] {
      const torch::NoGradGuard no_gradients;
      at::Tensor keys, values, word = some_words(4, 1);
      for (int n = 0; n < 12; ++n)
        word = torch::multinomial(model.forward(word, &keys, &values).select(1, -1).softmax(-1), 1);
      run.keep("words" + std::to_string(i), word);
    });
  }
  run.keep(model);
}

// Gradients of an embedding as rows, and an Adam that steps those rows alone.
void sparse_adam(Trial& run) {
  constexpr std::int64_t rows = 4096;
  nn::Embedding table(nn::EmbeddingOptions(rows, width).sparse(true));
  nn::Linear head(width, 10);
  torch::optim::SGD sgd(head->parameters(), torch::optim::SGDOptions(0.1));
  run.watch(*table, "table");
  run.watch(*head, "head");
  at::Tensor first = torch::zeros({rows, width}), second = torch::zeros({rows, width});
  for (int i = 1; i <= steps; ++i) {
    run.within([&] {
      const at::Tensor chosen = torch::randint(rows, {64}, torch::kLong);
      const at::Tensor loss =
          F::cross_entropy(head->forward(table->forward(chosen)), torch::randint(10, {64}, torch::kLong));
      head->zero_grad();
      table->weight.mutable_grad().reset();
      loss.backward();
      sgd.step();
      const torch::NoGradGuard no_gradients;
      const at::Tensor gradient = table->weight.grad().coalesce();
      const at::Tensor at = gradient.indices().select(0, 0), value = gradient.values();
      first.index_copy_(0, at, first.index_select(0, at) * 0.9 + value * 0.1);
      second.index_copy_(0, at, second.index_select(0, at) * 0.999 + value * value * 0.001);
      const at::Tensor step = first.index_select(0, at) / (second.index_select(0, at).sqrt() + 1e-8);
      table->weight.index_add_(0, at, step, -1e-2 * (1 - std::pow(0.999, i)));
      run.keep(loss);
    });
  }
  run.keep(*table);
  run.keep("first", first);
  run.keep("second", second);
}

}  // namespace

std::vector<Program> language_programs() {
  return {{"tied_lstm", tied_lstm},
          {"masked_words", masked_words},
          {"mixture_of_experts", mixture_of_experts},
          {"generate_with_a_cache", generate_with_a_cache},
          {"sparse_adam", sparse_adam}};
}

}  // namespace vedette::test::foreign
