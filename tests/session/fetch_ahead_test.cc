// How early an op that follows no plan fetches, in a replay. What comes too early displaces what is used sooner, which
// then moves, too. All figures are the same in every run.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "session/irregular_shapes.h"
#include "session/replay.h"

namespace vedette::fetch_ahead_test {
namespace {

using testing::irregular_shapes;
using testing::LinkStore;
using testing::Player;
using testing::ReplayPlayer;
using testing::Shape;

// The ops of bench/irregular's batch that grows: a perceptron of eight layers, and Adam.
class GrowingPerceptron final : public Shape {
 public:
  explicit GrowingPerceptron(Player& player) : Shape(player) {
    add_layers(layers, layer_bytes, true);
    for (std::size_t l = 0; l < layers; ++l) others_.push_back(player.filled(layer_bytes, 200 + l));
  }
  void step(std::size_t number) override {
    const std::size_t batch = 256 + number * 32, bytes = batch * 1536 * 4 / 32;
    player_.step([&] {
      Tensors kept = {player_.made("randn", bytes, {})};
      for (const Tensor w : weights_) {
        const Tensor linear = player_.made("addmm", bytes, {kept.back(), w});
        kept.push_back(player_.made("relu", bytes, {linear}));
        player_.drop(linear);
      }
      drop_all(gradients_);
      backward(kept, bytes);
      for (std::size_t l = 0; l < layers; ++l) update(l);
    });
  }

 private:
  static constexpr std::size_t layers = 8, layer_bytes = chunk * 9 / 2;

  void backward(Tensors& kept, std::size_t bytes) {
    gradients_.resize(layers);
    Tensor slope = player_.made("loss", bytes, {kept.back()});
    for (std::size_t l = layers; l-- > 0;) {
      const Tensor inner = player_.made("threshold_backward", bytes, {slope, kept[l + 1]});
      player_.drop(slope);
      player_.drop(kept[l + 1]);
      if (l > 0) slope = player_.made("mm", bytes, {inner, weights_[l]});
      gradients_[l] = player_.made("mm", layer_bytes, {inner, kept[l]});
      player_.drop(inner);
    }
    player_.drop(kept.front());
  }
  void update(std::size_t l) {
    const Tensor mean = moments_[l], square = others_[l];
    player_.changed("lerp", {mean}, {gradients_[l]});
    player_.changed("mul", {square});
    player_.changed("addcmul", {square}, {gradients_[l]});
    const Tensor root = player_.made("sqrt", layer_bytes, {square}), divisor = player_.made("div", layer_bytes, {root});
    player_.drop(root);
    player_.changed("add", {divisor});
    player_.changed("addcdiv", {weights_[l]}, {mean, divisor});
    player_.drop(divisor);
  }

  Tensors gradients_;
};

struct Replayed {
  double chunks = 0, ns = 0;
};

// Steps 4 to 23. `computing`: with a chunk; the link moves one in LinkStore::of_a_chunk.
template <class Make>
Replayed replay(Make make, std::uint32_t frames, const std::string& policy, Nanoseconds computing) {
  ReplayPlayer player({frames * Shape::chunk}, policy, computing);
  const std::unique_ptr<Shape> program = make(player);
  const auto now = [&] {
    const Counters counters = player.counters();
    return Replayed{.chunks = static_cast<double>((counters.bytes_in.value + counters.bytes_out.value) / Shape::chunk),
                    .ns = static_cast<double>(player.time().value)};
  };
  for (std::size_t s = 0; s < 4; ++s) program->step(s);
  const Replayed first = now();
  for (std::size_t s = 4; s < 24; ++s) program->step(s);
  const Replayed all = now();
  static_cast<void>(program->state());  // compares all bytes
  return {.chunks = all.chunks - first.chunks, .ns = all.ns - first.ns};
}

// Over on-demand, which fetches nothing early. In brackets: where each fetch begins as soon as memory holds it.
TEST(FetchAhead, WhatNeedNotComeYetDisplacesNothing) {
  const auto growing = testing::make_shape<GrowingPerceptron>;
  const Replayed on_demand = replay(growing, 81, "on-demand", LinkStore::of_a_chunk),
                 foreseen = replay(growing, 81, "vedette", LinkStore::of_a_chunk);
  EXPECT_LE(foreseen.chunks, on_demand.chunks * 0.75) << "(0.94; the best choice of victims: 0.64)";
  EXPECT_LE(foreseen.ns, on_demand.ns * 0.85);
}

TEST(FetchAhead, ALinkThatIsLateIsSparedWhatWouldComeBack) {
  const Nanoseconds quick{LinkStore::of_a_chunk.value / 4};
  const auto over_on_demand = [&](std::size_t shape, std::uint32_t frames) {
    const auto make = irregular_shapes[shape].make;
    return replay(make, frames, "vedette", quick).ns / replay(make, frames, "on-demand", quick).ns;
  };
  EXPECT_LE(over_on_demand(0, 15), 0.86) << irregular_shapes[0].name << " (0.92)";
  EXPECT_LE(over_on_demand(1, 21), 0.80) << irregular_shapes[1].name << " (0.89)";
  EXPECT_LE(over_on_demand(3, 27), 0.74) << irregular_shapes[3].name << " (0.81)";
}

}  // namespace
}  // namespace vedette::fetch_ahead_test
