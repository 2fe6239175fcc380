// A program without libtorch: memory from a session, one step, one op.
#include <vedette/vedette.h>

#include <cstdio>
#include <cstring>

// One header has all that a program without libtorch may inherit from.
class Listener final : public vedette::Observer, public vedette::GpuObserver, public vedette::BirthObserver {
 public:
  bool wants_births() const noexcept override { return false; }
};

int main() {
  using namespace vedette::literals;
  Listener listener;
  vedette::SessionOptions options{.fast_memory = 64_MiB, .slow = "host", .chunk = 64_KiB, .observer = &listener};
  auto session = vedette::Session::open(options).value();
  std::byte* memory = session->allocate({.bytes = 1_MiB, .name = "numbers"}).value();
  {
    auto step = session->step();
    const void* operand = memory;
    auto op = session->op("fill", {}, {&operand, 1});
    std::memset(memory, 7, (1_MiB).value);
  }
  vedette::Session::release(memory);
  if (session->counters().steps != 1 || vedette::machine_presets().empty()) return 1;
  std::puts("vedette works");
}
