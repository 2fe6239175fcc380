// What a steady planned step of a session on the simulated GPU allocates on the training thread: announcements of ops,
// births, deaths, and moves by the plan.
#include <gtest/gtest.h>

#include <vector>

#include "simulated_gpu/test_device.h"
#include "support/counted_allocations.h"
#include "vedette/gpu.h"
#include "vedette/session.h"

namespace vedette::testing::gpu_allocations_test {
namespace {

constexpr std::size_t layers = 8;
constexpr Bytes of_activation = 256_KiB, of_weight = 128_KiB;

// Queues no work: its tensors alone come, go and move.
class Program final : public GpuProgram {
 public:
  Program() {
    auto opened = Session::open({.fast_memory = 2_MiB, .fast = "gpu:0", .gpu = this, .policy = "vedette"});
    EXPECT_TRUE(opened) << opened.error().message;
    session_ = std::move(*opened);
    for (std::size_t l = 0; l < 2 * layers; ++l) weights_[l] = make(of_weight, true);
  }
  ~Program() override {
    for (std::byte* const weight : weights_) Session::release(weight);
    session_.reset();
  }
  void* current_stream() noexcept override { return stream_.handle(); }
  void moved(const void*, DeviceAddress) noexcept override {}

  // Of its ops; and with its begin and end.
  struct Counted {
    unsigned ops = 0, whole = 0;
  };
  Counted step() {
    Counted counted;
    allocations = 0;
    counts_allocations = true;
    {
      const auto scope = session_->step();
      const unsigned before = allocations;
      forward_and_backward();
      counted.ops = allocations - before;
    }
    counts_allocations = false;
    counted.whole = allocations;
    stream_.synchronize().value();
    return counted;
  }
  std::string_view phase() const { return session_->phase(); }
  Counters counters() const { return session_->counters(); }

 private:
  std::byte* make(Bytes bytes, bool persistent = false) {
    std::byte* const made = session_->allocate({.bytes = bytes, .persistent = persistent}).value();
    session_->gpu()->allow_moves(made);  // no code has its address
    return made;
  }
  void op(std::string_view name, std::byte* to, std::initializer_list<const void*> from) {
    const void* const writes[] = {to};
    const auto scope = session_->op(name, {from.begin(), from.size()}, writes);
  }
  void forward_and_backward() {
    std::byte* activations[layers + 1];
    activations[0] = make(of_activation);
    op("aten::load_of_a_batch", activations[0], {});
    for (std::size_t l = 0; l < layers; ++l) {
      activations[l + 1] = make(of_activation);
      op("aten::forward_of_a_layer", activations[l + 1], {activations[l], weights_[l]});
    }
    std::byte* gradient = make(of_activation);
    op("aten::loss", gradient, {activations[layers]});
    for (std::size_t l = layers; l-- > 0;) {
      std::byte* const next = make(of_activation);
      op("aten::backward_of_a_layer", next, {gradient, activations[l], weights_[l]});
      Session::release(activations[l + 1]);
      Session::release(gradient);
      gradient = next;
      op("aten::update_of_a_moment", weights_[layers + l], {gradient, weights_[layers + l]});
      op("aten::update_of_a_weight", weights_[l], {weights_[layers + l], weights_[l]});
    }
    Session::release(gradient);
    Session::release(activations[0]);
  }

  std::shared_ptr<cuda::Device> device_ = open_device();
  cuda::Stream stream_ = cuda::Stream::create(device_).value();
  std::unique_ptr<Session> session_;
  std::byte* weights_[2 * layers] = {};
};

class GpuAllocations : public SimulatedGpu {};

// One step in 16 of a settled plan is timed, and its times are told to the policy in a few lists when it ends, or the
// next one. So 32 steps have the lists of two, or of three where those of the step before the first come late.
TEST_F(GpuAllocations, ASteadyStepByItsPlanAllocatesNothing) {
  constexpr unsigned of_times = 16;
  constexpr int until_rings_are_full = 400;  // of events, 4096 a stream
  Program program;
  for (int s = 0; s < until_rings_are_full; ++s) program.step();
  EXPECT_EQ(program.phase(), "planned");
  const Counters before = program.counters();
  std::vector<int> timed;
  for (int s = 0; s < 32; ++s) {
    const Program::Counted counted = program.step();
    EXPECT_EQ(counted.ops, 0u) << "step " << s;
    EXPECT_LE(counted.whole, of_times) << "step " << s;
    if (counted.whole > 0) timed.push_back(s);
  }
  EXPECT_LE(timed.size(), 3u) << ::testing::PrintToString(timed);
  const Counters after = program.counters();
  EXPECT_GT(after.bytes_in.value, before.bytes_in.value) << "nothing moved";
  EXPECT_GT(after.bytes_out.value, before.bytes_out.value) << "nothing moved";
}

}  // namespace
}  // namespace vedette::testing::gpu_allocations_test
