// A recommender as in DLRM (Naumov et al., 2019). Categories look up rows of an embedding table; their products with
// each other and with the dense features go through a multilayer perceptron that predicts a click. The table is nearly
// all of the model, and few of its rows are looked up: 99 of 100 look-ups fall on the first hundredth of a category's
// rows. Its gradient is sparse. Data is made up from the seed: no data set of this kind comes as a package.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <random>
#include <vector>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct TableShape {
  std::int64_t categories, rows, width, hidden, batch;  // rows of each category; 1 GiB: 8 * 2^19 * 64 * 4 bytes
};
constexpr std::int64_t dense_features = 13;

struct ClicksImpl : nn::Module {
  explicit ClicksImpl(const TableShape& shape)
      : table(register_module(
            "table", nn::Embedding(nn::EmbeddingOptions(shape.categories * shape.rows, shape.width).sparse(true)))),
        bottom(register_module("bottom", nn::Sequential(nn::Linear(dense_features, shape.hidden), nn::ReLU(),
                                                        nn::Linear(shape.hidden, shape.width), nn::ReLU()))) {
    const std::int64_t vectors = shape.categories + 1;
    top = register_module("top", nn::Sequential(nn::Linear(shape.width + vectors * vectors, shape.hidden), nn::ReLU(),
                                                nn::Linear(shape.hidden, 1)));
  }
  torch::Tensor forward(const torch::Tensor& dense, const torch::Tensor& rows) {  // [n, 13], [n, categories]
    const auto features = bottom->forward(dense);
    const auto vectors = torch::cat({features.unsqueeze(1), table(rows)}, 1);
    const auto products = torch::bmm(vectors, vectors.transpose(1, 2)).flatten(1);
    return top->forward(torch::cat({features, products}, 1)).squeeze(1);
  }
  nn::Embedding table;
  nn::Sequential bottom, top{nullptr};
};
TORCH_MODULE(Clicks);

class Recommender final : public Model {
 public:
  Recommender(const TableShape& shape, const ModelOptions& options) : shape_(shape), seed_(options.seed) {
    if (options.batch > 0) shape_.batch = options.batch;
    torch::manual_seed(options.seed);
    net_ = Clicks(shape_);
    sgd_ = std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(0.01));
  }

  nn::Module& module() override { return *net_; }
  torch::optim::Optimizer& optimizer() override { return *sgd_; }
  std::int64_t batch() const override { return shape_.batch; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    std::mt19937_64 random(seed_ * 1'000'003 + static_cast<std::uint64_t>(step));
    const auto below = [&](std::int64_t bound) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
    };
    const auto dense = torch::empty({size, dense_features});
    const auto rows = torch::empty({size, shape_.categories}, torch::kLong);
    const auto clicks = torch::empty({size});
    for (std::int64_t i = 0; i < size; ++i) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < dense_features; ++k)
        dense.mutable_data_ptr<float>()[i * dense_features + k] = static_cast<float>(below(1000)) / 1000;
      for (std::int64_t k = 0; k < shape_.categories; ++k) {
        const std::int64_t row = below(below(100) == 0 ? shape_.rows : std::max<std::int64_t>(shape_.rows / 100, 1));
        rows.mutable_data_ptr<std::int64_t>()[i * shape_.categories + k] = k * shape_.rows + row;
        sum += row;
      }
      clicks.mutable_data_ptr<float>()[i] = sum % 3 == 0 ? 1.0f : 0.0f;
    }
    return nn::functional::binary_cross_entropy_with_logits(net_(here(dense), here(rows)), here(clicks));
  }

 private:
  TableShape shape_;
  std::uint64_t seed_;
  Clicks net_{nullptr};
  std::unique_ptr<torch::optim::SGD> sgd_;
};

}  // namespace

std::unique_ptr<Model> make_recommender(const ModelOptions& options) {
  constexpr TableShape shape = {
      .categories = 8, .rows = std::int64_t{1} << 19, .width = 64, .hidden = 512, .batch = 512};
  constexpr TableShape test_shape = {.categories = 4, .rows = 16384, .width = 16, .hidden = 32, .batch = 16};
  return std::make_unique<Recommender>(options.small ? test_shape : shape, options);
}

}  // namespace vedette::examples
