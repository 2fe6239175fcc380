// A model from elsewhere: a TorchScript file, as torch.jit.script(model).save(FILE) leaves it in Python. It takes
// images [n, 3, 32, 32] and gives at least ten scores each, as torchvision's classifiers do. Fashion-MNIST is padded
// and repeated to three channels. Its parameters and buffers are shown to the guard by a module that holds the same
// tensors under the same names.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <stdexcept>

#include "models/data.h"
#include "models/model.h"

namespace vedette::examples {
namespace {

namespace nn = torch::nn;

struct Mirror : nn::Module {  // of a script module and those in it
  explicit Mirror(const torch::jit::Module& of) {
    for (const auto& parameter : of.named_parameters(/*recurse=*/false))
      register_parameter(parameter.name, parameter.value);
    for (const auto& buffer : of.named_buffers(/*recurse=*/false)) register_buffer(buffer.name, buffer.value);
    for (const auto& child : of.named_children()) register_module(child.name, std::make_shared<Mirror>(child.value));
  }
};

torch::jit::Module load(const std::string& path) {
  try {
    return torch::jit::load(path);
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    throw std::runtime_error(path + " cannot be loaded as TorchScript (" + why.substr(0, why.find_first_of(".\n")) +
                             "); save it with torch.jit.script(model).save(FILE)");
  }
}

class Script final : public Model {
 public:
  explicit Script(const ModelOptions& options)
      : batch_(options.batch > 0 ? options.batch
               : options.small   ? 4
                                 : 64),
        images_(options.small ? Images::made_up(batch_ * 16, options.seed) : Images::fashion_mnist()),
        net_(load(options.script)),
        mirror_(std::make_shared<Mirror>(net_)) {
    torch::manual_seed(options.seed);
    net_.train();
    sgd_ = std::make_unique<torch::optim::SGD>(mirror_->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  }

  nn::Module& module() override { return *mirror_; }
  torch::optim::Optimizer& optimizer() override { return *sgd_; }
  std::int64_t batch() const override { return batch_; }
  at::Tensor loss(std::int64_t step, std::int64_t size) override {
    net_.train(mirror_->is_training());
    const auto data = images_->batch(step, batch_, size);
    const auto padded = nn::functional::pad(here(data.images), nn::functional::PadFuncOptions({2, 2, 2, 2}));
    const at::Tensor scores = net_.forward({padded.expand({-1, 3, -1, -1}).contiguous()}).toTensor();
    return nn::functional::cross_entropy(scores, here(data.labels));
  }

 private:
  std::int64_t batch_;
  std::shared_ptr<const Images> images_;
  torch::jit::Module net_;
  std::shared_ptr<Mirror> mirror_;
  std::unique_ptr<torch::optim::SGD> sgd_;
};

}  // namespace

std::unique_ptr<Model> make_script(const ModelOptions& options) { return std::make_unique<Script>(options); }

}  // namespace vedette::examples
