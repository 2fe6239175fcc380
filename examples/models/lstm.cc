// Two LSTM layers that read an image row by row and classify it after the last row.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/rmsprop.h>
#include <torch/utils.h>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct ReaderImpl : nn::Module {
  explicit ReaderImpl(std::int64_t width)
      : lstm(register_module("lstm", nn::LSTM(nn::LSTMOptions(28, width).num_layers(2).batch_first(true)))),
        fc(register_module("fc", nn::Linear(width, 10))) {}
  torch::Tensor forward(const torch::Tensor& rows) {
    const auto [output, state] = lstm->forward(rows);
    return fc(output.select(1, -1));
  }
  nn::LSTM lstm;
  nn::Linear fc;
};
TORCH_MODULE(Reader);

class Lstm final : public Model {
 public:
  explicit Lstm(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 16
                                 : 256),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()) {
    torch::manual_seed(options.seed);
    net_ = Reader(options.small ? 64 : 512);
    rmsprop_ = std::make_unique<torch::optim::RMSprop>(net_->parameters(), torch::optim::RMSpropOptions(1e-3));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *rmsprop_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    const auto data = images_->batch(step, batch_, size);
    return nn::functional::cross_entropy(net_(here(data.images).squeeze(1)), here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  Reader net_{nullptr};
  std::unique_ptr<torch::optim::RMSprop> rmsprop_;
};

}  // namespace

std::unique_ptr<Model> make_lstm(const ModelOptions& options) { return std::make_unique<Lstm>(options); }

}  // namespace vedette::examples
