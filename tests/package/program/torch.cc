// The README's loop in small, with its two optional lines: a recording, and updates within backward.
#include <profiler/recording.h>
#include <torch/torch.h>
#include <vedette/torch.h>

#include <cstdio>

int main() {
  using namespace vedette::literals;
  auto model = torch::nn::Linear(64, 8);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  {
    vedette::Guard guard{{.fast_memory = 64_MiB, .slow = "host", .chunk = 64_KiB, .record = "run.vedette"}};
    guard.watch(*model);
    guard.watch(optimizer);
    for (int i = 0; i < 4; ++i) {
      auto step = guard.step();
      optimizer.zero_grad();
      auto loss = model->forward(torch::ones({4, 64})).square().sum();
      if (i % 2 == 0) {
        loss.backward();
        optimizer.step();
      } else {
        vedette::step_in_backward(optimizer, [&] { loss.backward(); });
      }
    }
    if (guard.counters().steps != 4) return 1;
  }
  if (vedette::Recording::open("run.vedette").value().headline().value().steps != 4) return 1;
  std::puts("vedette works");
}
