// Images.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include "foreign/programs.h"

namespace vedette::test::foreign {
namespace {

namespace F = nn::functional;
using Adam = torch::optim::Adam;
using torch::optim::AdamOptions;

constexpr std::int64_t side = 32;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).stride(stride));
}

// Wasserstein GAN with gradient penalty: the gradient's norm is differentiated.
void wgan_gp(Trial& run) {
  nn::Sequential critic(conv(3, 24, 2), nn::LeakyReLU(), conv(24, 48, 2), nn::LeakyReLU(), nn::Flatten(),
                        nn::Linear(48 * 8 * 8, 1));
  nn::Sequential generator(nn::Linear(32, 48 * 8 * 8), nn::ReLU(), nn::Unflatten(nn::UnflattenOptions(1, {48, 8, 8})),
                           nn::ConvTranspose2d(nn::ConvTranspose2dOptions(48, 24, 4).stride(2).padding(1)), nn::ReLU(),
                           nn::ConvTranspose2d(nn::ConvTranspose2dOptions(24, 3, 4).stride(2).padding(1)), nn::Tanh());
  Adam of_critic(critic->parameters(), AdamOptions(1e-3).betas({0.0, 0.9}));
  Adam of_generator(generator->parameters(), AdamOptions(1e-3).betas({0.0, 0.9}));
  run.watch(*critic, "critic");
  run.watch(*generator, "generator");
  run.watch(of_critic);
  run.watch(of_generator);
  for (int i = 0; i < 2 * steps; ++i) {
    run.within([&] {
      const at::Tensor made = generator->forward(torch::randn({batch, 32}));
      if (i % 4 == 3) {
        of_generator.zero_grad();
        const at::Tensor loss = -critic->forward(made).mean();
        loss.backward();
        of_generator.step();
        return run.keep(loss);
      }
      const at::Tensor real = torch::randn({batch, 3, side, side});
      const at::Tensor share = torch::rand({batch, 1, 1, 1});
      const at::Tensor between = (share * real + (1 - share) * made.detach()).requires_grad_();
      const auto slope = torch::autograd::grad({critic->forward(between).sum()}, {between}, {}, true, true)[0];
      const at::Tensor penalty = (slope.flatten(1).norm(2, 1) - 1).pow(2).mean();
      const at::Tensor loss = critic->forward(made.detach()).mean() - critic->forward(real).mean() + 10 * penalty;
      of_critic.zero_grad();
      loss.backward();
      of_critic.step();
      run.keep(loss);
    });
  }
  run.keep(*critic, "critic.");
  run.keep(*generator, "generator.");
}

struct Block : nn::Module {  // convolution, normalisation in groups, and what time it is
  Block(std::int64_t in, std::int64_t out) : first(conv(in, out)), norm(4, out), time(16, out) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("time", time);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& t) {
    return F::silu(norm->forward(first->forward(x) + time->forward(t).unsqueeze(-1).unsqueeze(-1)));
  }
  nn::Conv2d first;
  nn::GroupNorm norm;
  nn::Linear time;
};

struct Denoiser : nn::Module {
  Denoiser() {
    register_module("down", down);
    register_module("middle", middle);
    register_module("up", up);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& t) {
    const at::Tensor fine = down->forward(x, t), coarse = middle->forward(torch::avg_pool2d(fine, {2, 2}), t);
    const at::Tensor wide = F::interpolate(
        coarse, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));
    return last->forward(up->forward(torch::cat({fine, wide}, 1), t));
  }
  std::shared_ptr<Block> down = std::make_shared<Block>(3, 24), middle = std::make_shared<Block>(24, 32),
                         up = std::make_shared<Block>(56, 24);
  nn::Conv2d last = conv(24, 3);
};

// Denoising diffusion, with a moving average of the weights; then a few steps of sampling with those.
void diffusion(Trial& run) {
  Denoiser model, average;
  {
    const torch::NoGradGuard no_gradients;
    const auto from = model.parameters(), to = average.parameters();
    for (std::size_t p = 0; p < from.size(); ++p) to[p].copy_(from[p]);
  }
  Adam adam(model.parameters(), AdamOptions(1e-3));
  run.watch(model, "model");
  run.watch(average, "average");
  run.watch(adam);
  const at::Tensor kept = torch::cumprod(1 - torch::linspace(1e-4, 0.02, 100), 0);
  const auto moment = [](const at::Tensor& t) {
    const at::Tensor angle = t.unsqueeze(1).to(torch::kFloat) * torch::pow(2.0, -torch::arange(8, torch::kFloat));
    return torch::cat({angle.sin(), angle.cos()}, 1);
  };
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor image = torch::rand({batch, 3, side, side}), noise = torch::randn_like(image);
      const at::Tensor t = torch::randint(100, {batch}, torch::kLong);
      const at::Tensor share = kept.index({t}).view({batch, 1, 1, 1});
      const at::Tensor noisy = share.sqrt() * image + (1 - share).sqrt() * noise;
      const at::Tensor loss = F::mse_loss(model.forward(noisy, moment(t)), noise);
      adam.zero_grad();
      loss.backward();
      adam.step();
      const torch::NoGradGuard no_gradients;
      const auto from = model.parameters(), to = average.parameters();
      for (std::size_t p = 0; p < from.size(); ++p) to[p].lerp_(from[p], 0.05);
      run.keep(loss);
    });
  }
  run.within([&] {
    const torch::NoGradGuard no_gradients;
    at::Tensor image = torch::randn({2, 3, side, side});
    for (const std::int64_t t : {99, 66, 33}) {
      const at::Tensor noise = average.forward(image, moment(torch::full({2}, t, torch::kLong)));
      image = (image - (1 - kept[t]).sqrt() * noise) / kept[t].sqrt();
    }
    run.keep("image", image);
  });
  run.keep(model, "model.");
  run.keep(average, "average.");
}

// A segmentation by a dice loss, with heavy skip connections and weighted classes.
void segmentation(Trial& run) {
  nn::Sequential encoder(conv(3, 32), nn::InstanceNorm2d(nn::InstanceNorm2dOptions(32).affine(true)), nn::ReLU());
  nn::Sequential deep(nn::MaxPool2d(2), conv(32, 64), nn::BatchNorm2d(64), nn::ReLU(),
                      nn::ConvTranspose2d(nn::ConvTranspose2dOptions(64, 32, 2).stride(2)));
  nn::Sequential head(conv(64, 32), nn::ReLU(), conv(32, 4));
  nn::Module model("segmenter");
  model.register_module("encoder", encoder);
  model.register_module("deep", deep);
  model.register_module("head", head);
  torch::optim::RMSprop rms(model.parameters(), torch::optim::RMSpropOptions(1e-3).momentum(0.9).centered(true));
  run.watch(model);
  run.watch(rms);
  const at::Tensor weight = torch::tensor({0.5F, 1.0F, 2.0F, 1.0F});
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor image = torch::rand({batch, 3, side, side});
      const at::Tensor wanted = torch::randint(4, {batch, side, side}, torch::kLong);
      const at::Tensor fine = encoder->forward(image);
      const at::Tensor scores = head->forward(torch::cat({fine, deep->forward(fine)}, 1));
      const at::Tensor share = scores.softmax(1), truth = F::one_hot(wanted, 4).permute({0, 3, 1, 2}).to(torch::kFloat);
      const at::Tensor dice = 1 - (2 * (share * truth).sum({2, 3}) + 1) / ((share + truth).sum({2, 3}) + 1);
      const at::Tensor loss =
          dice.mean() + F::cross_entropy(scores, wanted, F::CrossEntropyFuncOptions().weight(weight));
      rms.zero_grad();
      loss.backward();
      rms.step();
      run.keep(loss);
    });
  }
  run.keep(model);
  run.keep(rms);
}

// The image is what is optimized, towards the Gram matrices of another one in a fixed network.
void style_transfer(Trial& run) {
  nn::Sequential first(conv(3, 24), nn::ReLU()), second(conv(24, 48, 2), nn::ReLU());
  for (const auto& network : {first, second})
    for (const at::Tensor& parameter : network->parameters()) parameter.set_requires_grad(false);
  run.watch(*first, "first");
  run.watch(*second, "second");
  const auto gram = [](const at::Tensor& features) {
    const at::Tensor flat = features.flatten(2);
    return torch::bmm(flat, flat.transpose(1, 2)) / flat.size(2);
  };
  const at::Tensor style = torch::rand({4, 3, side, side});
  const at::Tensor image = torch::rand({4, 3, side, side}).requires_grad_();
  at::Tensor wanted_first, wanted_second;
  run.within([&] {
    const torch::NoGradGuard no_gradients;
    const at::Tensor x = first->forward(style);
    wanted_first = gram(x);
    wanted_second = gram(second->forward(x));
  });
  Adam adam(std::vector<at::Tensor>{image}, AdamOptions(0.05));
  run.watch(adam);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor x = first->forward(image);
      const at::Tensor smooth = (image.slice(3, 1) - image.slice(3, 0, side - 1)).abs().mean();
      const at::Tensor loss =
          F::mse_loss(gram(x), wanted_first) + F::mse_loss(gram(second->forward(x)), wanted_second) + 0.1 * smooth;
      adam.zero_grad();
      loss.backward();
      adam.step();
      {
        const torch::NoGradGuard no_gradients;
        image.clamp_(0, 1);
      }
      run.keep(loss);
    });
  }
  run.keep("image", image);
}

// A variational autoencoder, and pairs of views of an image that should look alike (InfoNCE), one optimizer for both.
void autoencoder_with_contrast(Trial& run) {
  nn::Sequential encoder(nn::Flatten(), nn::Linear(3 * side * side, 128), nn::ReLU(), nn::Linear(128, 64));
  nn::Sequential decoder(nn::Linear(32, 128), nn::ReLU(), nn::Linear(128, 3 * side * side), nn::Sigmoid());
  nn::Module model("vae");
  model.register_module("encoder", encoder);
  model.register_module("decoder", decoder);
  torch::optim::Adagrad adagrad(model.parameters(), torch::optim::AdagradOptions(1e-2));
  run.watch(model);
  run.watch(adagrad);
  for (int i = 0; i < steps; ++i) {
    run.within([&] {
      const at::Tensor image = torch::rand({batch, 3, side, side});
      const auto parts = encoder->forward(image).chunk(2, 1);
      const at::Tensor code = parts[0] + torch::randn_like(parts[0]) * (parts[1] * 0.5).exp();
      const at::Tensor again = decoder->forward(code);
      const at::Tensor far = -0.5 * (1 + parts[1] - parts[0].pow(2) - parts[1].exp()).mean();
      const at::Tensor one = F::normalize(encoder->forward(image + 0.1 * torch::randn_like(image)));
      const at::Tensor other = F::normalize(encoder->forward(image.flip(3)));
      const at::Tensor alike = torch::mm(one, other.t()) / 0.1;
      const at::Tensor loss = F::binary_cross_entropy(again, image.flatten(1)) + far +
                              F::cross_entropy(alike, torch::arange(batch, torch::kLong));
      adagrad.zero_grad();
      loss.backward();
      adagrad.step();
      run.keep(loss);
    });
  }
  run.keep(model);
}

}  // namespace

std::vector<Program> vision_programs() {
  return {{"wgan_gp", wgan_gp},
          {"diffusion", diffusion},
          {"segmentation", segmentation},
          {"style_transfer", style_transfer},
          {"autoencoder_with_contrast", autoencoder_with_contrast}};
}

}  // namespace vedette::test::foreign
