// The README's loop, in small.
#include <torch/torch.h>
#include <vedette/torch.h>

#include <cstdio>

int main() {
  using namespace vedette::literals;
  auto model = torch::nn::Linear(64, 8);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  vedette::Guard guard{{.fast_memory = 64_MiB, .slow = "host", .chunk = 64_KiB}};
  guard.watch(*model);
  guard.watch(optimizer);
  for (int i = 0; i < 3; ++i) {
    auto step = guard.step();
    optimizer.zero_grad();
    auto loss = model->forward(torch::ones({4, 64})).square().sum();
    loss.backward();
    optimizer.step();
  }
  if (guard.counters().steps != 3) return 1;
  std::puts("vedette works");
}
