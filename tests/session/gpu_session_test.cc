// A session whose fast memory is the simulated GPU's: a training loop has the host's numbers in a part of its peak, by
// a plan, without a race and without waits of the host.
#include "support/gpu_program.h"

namespace vedette::testing {
namespace {

using Tensor = WordsOnGpu::Tensor;

// Layers with a weight and a moment each; activations live from forward to backward.
class Net {
 public:
  Net(WordsOnGpu& gpu, std::size_t layers, std::size_t words) : gpu_(gpu), words_(words) {
    for (std::size_t l = 0; l < layers; ++l) {
      for (auto* list : {&weights_, &moments_}) {
        list->push_back(gpu.make(words / 2, true));
        gpu.op("init", list->back(), {}, static_cast<std::uint32_t>(l + 1));
      }
    }
  }

  void step(std::uint32_t input) {
    const auto scope = gpu_.session->step();
    std::vector<Tensor> activations;
    activations.push_back(gpu_.make(words_));
    gpu_.op("load", activations.back(), {}, input);
    for (const Tensor& weight : weights_) {
      activations.push_back(gpu_.make(words_));
      gpu_.op("forward", activations.back(), {&activations[activations.size() - 2], &weight}, 1u);
      Tensor scratch = gpu_.make(words_ / 4);
      gpu_.op("scratch", scratch, {&weight}, 2u);
      gpu_.drop(scratch);
    }
    Tensor gradient = gpu_.make(words_);
    gpu_.op("loss", gradient, {&activations.back()}, 3u);
    for (std::size_t l = weights_.size(); l-- > 0;) {
      Tensor next = gpu_.make(words_);
      gpu_.op("backward", next, {&gradient, &activations[l], &weights_[l]}, 4u);
      gpu_.drop(activations[l + 1]);
      gpu_.drop(gradient);
      gradient = next;
      gpu_.op("moment", moments_[l], {&gradient});
      gpu_.op("update", weights_[l], {&moments_[l]});
    }
    gpu_.drop(gradient);
    gpu_.drop(activations[0]);
  }

  void expect_right() {
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      gpu_.expect_right(weights_[l], "weight " + std::to_string(l));
      gpu_.expect_right(moments_[l], "moment " + std::to_string(l));
    }
  }

 private:
  WordsOnGpu& gpu_;
  const std::size_t words_;
  std::vector<Tensor> weights_, moments_;
};

class GpuSession : public SimulatedGpu {};

constexpr std::size_t layers = 8, words = 64 << 10;  // activations of 256 KiB: 2.3 MiB of them, 2 MiB of weights

struct Ran {
  Counters first, later;  // of a planned step
  Bytes peak;
  std::string phase;
  std::vector<std::string> messages;
};

// vedette plans again while it learns from measured steps: at most six times, after three steps each.
constexpr int until_settled = 48;

Ran run(Bytes budget, const std::string& policy, int steps) {
  WordsOnGpu gpu({.fast_memory = budget, .policy = policy});
  Net net(gpu, layers, words);
  Ran ran;
  std::vector<Counters> counters;
  for (int s = 0; s < steps; ++s) {
    net.step(static_cast<std::uint32_t>(s));
    gpu.stream.synchronize().value();  // the step's times are known when the next one ends
    counters.push_back(gpu.session->counters());
  }
  ran.phase = gpu.session->phase();
  net.expect_right();
  const auto of_step = [&](std::size_t s) {
    Counters step = counters[s];
    step.bytes_in -= counters[s - 1].bytes_in;
    step.bytes_out -= counters[s - 1].bytes_out;
    return step;
  };
  ran.first = of_step(counters.size() - 2);
  ran.later = of_step(counters.size() - 1);
  ran.peak = {gpu.session->counters().resident_max_bytes};
  ran.messages = gpu.messages;
  EXPECT_FALSE(gpu.session->take_error());
  return ran;
}

TEST_F(GpuSession, TrainsInPartsOfItsPeakByAPlan) {
  const Ran whole = run(16_MiB, "vedette", until_settled);
  EXPECT_EQ(whole.later.bytes_in + whole.later.bytes_out, 0u) << "all of it fits";
  for (const std::uint64_t percent : {75u, 50u, 35u}) {
    const Bytes budget{whole.peak.value / 100 * percent};
    const Ran ran = run(budget, "vedette", until_settled);
    EXPECT_EQ(ran.phase, "planned") << percent;
    EXPECT_THAT(ran.messages, ::testing::IsEmpty()) << percent;
    EXPECT_LE(ran.peak, budget);
    EXPECT_GT(ran.later.bytes_out, 0u);
    // At least what cannot stay moves each way; a step by a plan moves the same bytes as the one before.
    EXPECT_EQ(ran.first.bytes_in, ran.later.bytes_in) << percent;
    EXPECT_EQ(ran.first.bytes_out, ran.later.bytes_out) << percent;
  }
}

TEST_F(GpuSession, EveryPolicyHasTheHostsNumbers) {
  for (const PolicyEntry& policy : policies()) {
    const Ran ran = run(2_MiB, std::string(policy.name), 6);
    if (HasFailure()) FAIL() << policy.name;
    EXPECT_LE(ran.peak, 2_MiB) << policy.name;
  }
}

}  // namespace
}  // namespace vedette::testing
