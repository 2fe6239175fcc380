// Words that a decoder generates one by one, in less memory than its weights and its cache take: which of them stay, in
// a replay. Every word reads all weights, so that what does not fit comes for each: `needed - memory` chunks are the
// bound. Where the chunks that stay are others in each word, all come for each.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "session/irregular_shapes.h"
#include "session/replay.h"

namespace vedette::generation_test {
namespace {

using testing::LinkStore;
using testing::Player;
using testing::ReplayPlayer;
using testing::Shape;

enum class Cache : std::uint8_t {
  grows,
  in_place
};  // made anew by each word, as torch.cat does, or written where it lies

struct Sizes {
  std::size_t layers = 12, weight = 3, cache = 1;  // chunks of a layer
  std::size_t in_all() const { return layers * (weight + cache); }
};

class Decoder final : public Shape {
 public:
  Decoder(Player& player, Sizes sizes, Cache cache) : Shape(player), sizes_(sizes), cache_(cache) {
    add_layers(sizes.layers, sizes.weight * chunk, false);
    for (std::size_t l = 0; l < sizes.layers; ++l) others_.push_back(player.filled(most() / 2, 50 + l));
  }
  void step(std::size_t number) override {
    player_.step([&] {
      Tensor x = input(chunk / 4, number);
      for (std::size_t l = 0; l < weights_.size(); ++l) {
        if (cache_ == Cache::grows) {
          const std::size_t bytes = most() / 2 + number * most() / 128;
          player_.drop(std::exchange(others_[l], player_.made("cat", bytes, {others_[l], x})));
        } else {
          player_.changed("store", {others_[l]}, {x});
        }
        player_.drop(std::exchange(x, player_.made("attend", chunk / 4, {x, others_[l], weights_[l]})));
      }
      player_.look(x);
      player_.drop(x);
    });
  }

 private:
  std::size_t most() const { return sizes_.cache * chunk; }
  const Sizes sizes_;
  const Cache cache_;
};

struct Moved {
  double in = 0, out = 0;  // chunks a word
};

Moved generate(Sizes sizes, Cache cache, std::uint32_t frames, const std::string& policy) {
  constexpr int warm = 8, words = 24;
  ReplayPlayer player({frames * Shape::chunk}, policy);
  Decoder decoder(player, sizes, cache);
  for (int s = 0; s < warm; ++s) decoder.step(static_cast<std::size_t>(s));
  const Counters before = player.counters();
  for (int s = warm; s < warm + words; ++s) decoder.step(static_cast<std::size_t>(s));
  const Counters now = player.counters();
  static_cast<void>(decoder.state());  // compares all bytes
  const auto a_word = [&](Bytes from, Bytes to) {
    return static_cast<double>(to.value - from.value) / Shape::chunk / words;
  };
  return {.in = a_word(before.bytes_in, now.bytes_in), .out = a_word(before.bytes_out, now.bytes_out)};
}

// A cache that is written where it lies: words repeat, and a plan serves them. In brackets: what was seen.
TEST(Generation, WeightsThatStayAreTheSameOnesInEachWord) {
  const Sizes sizes{.layers = 12, .weight = 8};
  const auto half = static_cast<std::uint32_t>(sizes.in_all() / 2);
  const auto bound = static_cast<double>(sizes.in_all() - half);
  const Moved moved = generate(sizes, Cache::in_place, half, "vedette");
  EXPECT_LE(moved.in, bound * 1.25) << "(64 chunks a word, of 108; the bound: 54)";
  EXPECT_LE(moved.out, 0.5) << "the cache stays, and weights leave for nothing (0)";
}

// A cache that each word makes anew, larger: no plan fits. On demand all weights come for each word.
TEST(Generation, WithACacheThatGrowsFewerWeightsComeThanOnDemand) {
  const Sizes sizes{.layers = 12, .weight = 8};
  const auto most = static_cast<std::uint32_t>(sizes.in_all() * 3 / 4);
  const Moved on_demand = generate(sizes, Cache::grows, most, "on-demand"),
              foreseen = generate(sizes, Cache::grows, most, "vedette");
  EXPECT_LE(foreseen.in, on_demand.in * 0.6) << "(45 and 96 chunks a word; the bound: 27)";
  EXPECT_LE(foreseen.out, 3) << "(1.5)";
}

}  // namespace
}  // namespace vedette::generation_test
