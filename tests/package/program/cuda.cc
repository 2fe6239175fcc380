// A guard of GPU memory in a program that seeds first, as most do.
#include <torch/torch.h>
#include <vedette/torch.h>

#include <cstdio>

int main() {
  using namespace vedette::literals;
  torch::manual_seed(3);
  try {
    vedette::Guard guard{{.fast_memory = 16_MiB, .fast = "cuda:0", .slow = "host"}};
    auto model = torch::nn::Linear(64, 8);
    model->to(torch::kCUDA);
    guard.watch(*model);
    for (int i = 0; i < 4; ++i) {
      auto step = guard.step();
      model->forward(torch::ones({4, 64}, torch::kCUDA)).square().sum().backward();
    }
    if (guard.counters().steps == 4) std::puts("vedette works");
  } catch (const vedette::Failure& failure) {
    std::puts(failure.what());
  }
}
