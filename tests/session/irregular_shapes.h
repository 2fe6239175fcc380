// The shapes of the steps of bench/irregular's eight programs, without their arithmetic: which tensors each op reads,
// makes and changes, how sizes grow, and which ops come and go. For any player.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "session/player.h"

namespace vedette::testing {

class Shape {
 public:
  static constexpr std::size_t chunk = 64 << 10;
  using Tensor = Player::Tensor;
  using Tensors = Player::Tensors;

  explicit Shape(Player& player) : player_(player) {}
  virtual ~Shape() = default;
  virtual void step(std::size_t number) = 0;
  std::uint64_t state() const {
    std::uint64_t all = 1;
    for (const Tensors* const each : {&weights_, &moments_, &others_})
      for (const Tensor tensor : *each) all = all * 31 + player_.sum(tensor);
    return all;
  }

 protected:
  // Layers of `bytes` each, with moments where it `trains`.
  void add_layers(std::size_t count, std::size_t bytes, bool trains) {
    for (std::size_t l = 0; l < count; ++l) {
      weights_.push_back(player_.filled(bytes, weights_.size()));
      player_.is_weight(weights_.back());
      if (trains) moments_.push_back(player_.filled(bytes, 100 + weights_.size()));
    }
  }
  Tensor input(std::size_t bytes, std::uint64_t mark) {
    const Tensor tensor = player_.make(bytes, false);
    player_.fill(tensor, mark);
    return tensor;
  }
  // Forward through the layers `order`, all activations kept; then backward, which makes gradients, and an update.
  void train(Tensor first, std::size_t bytes, const std::vector<std::size_t>& order) {
    Tensors activations = {first}, gradients;
    for (const std::size_t l : order)
      activations.push_back(player_.made("forward", bytes, {activations.back(), weights_[l]}));
    Tensor slope = player_.made("loss", bytes, {activations.back()});
    for (std::size_t k = order.size(); k-- > 0;) {
      gradients.push_back(player_.made("weight gradient", chunk, {slope, activations[k]}));
      const Tensor next = player_.made("backward", bytes, {slope, weights_[order[k]], activations[k + 1]});
      player_.drop(std::exchange(slope, next));
      player_.drop(activations[k + 1]);
    }
    player_.drop(slope);
    player_.drop(first);
    for (std::size_t k = 0; k < order.size(); ++k) {
      const std::size_t l = order[order.size() - 1 - k];
      player_.changed("update", {weights_[l], moments_[l]}, {gradients[k]});
      player_.drop(gradients[k]);
    }
  }
  // One word: each layer's cache is made anew, larger.
  void word(Tensors& caches, std::size_t bytes_of_cache) {
    Tensor x = input(chunk / 4, bytes_of_cache);
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      if (caches.size() <= l) {
        caches.push_back(player_.made("cache", bytes_of_cache, {x}));
      } else {
        player_.drop(std::exchange(caches[l], player_.made("cat", bytes_of_cache, {caches[l], x})));
      }
      player_.drop(std::exchange(x, player_.made("attend", chunk / 4, {x, caches[l], weights_[l]})));
    }
    player_.look(x);
    player_.drop(x);
  }
  void drop_all(Tensors& tensors) {
    for (const Tensor tensor : tensors) player_.drop(tensor);
    tensors.clear();
  }
  std::vector<std::size_t> all_layers() const {
    std::vector<std::size_t> all(weights_.size());
    for (std::size_t l = 0; l < all.size(); ++l) all[l] = l;
    return all;
  }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }

  Player& player_;
  std::mt19937_64 random_{5};
  Tensors weights_, moments_, others_;
};

class GrowingCache final : public Shape {
 public:
  explicit GrowingCache(Player& player) : Shape(player) { add_layers(6, 3 * chunk, false); }
  void step(std::size_t number) override {
    const std::size_t words = number % 24;  // of a text
    if (words == 0) drop_all(others_);
    player_.step([&] { word(others_, chunk / 2 + words * chunk / 16); });
  }
};

class VaryingLengths final : public Shape {
 public:
  explicit VaryingLengths(Player& player) : Shape(player) { add_layers(6, 2 * chunk, true); }
  void step(std::size_t number) override {
    const std::size_t bytes = (32 + below(225)) * chunk / 128;
    player_.step([&] { train(input(bytes, number), bytes, all_layers()); });
  }
};

class ExpertsDrawn final : public Shape {
 public:
  explicit ExpertsDrawn(Player& player) : Shape(player) { add_layers(16, 2 * chunk, true); }
  void step(std::size_t number) override {
    std::vector<std::size_t> order;
    const bool few = number % 5 == 4;
    for (std::size_t l = 0; l < weights_.size(); ++l)
      if (below(8) != 0 && (!few || below(2) != 0)) order.push_back(l);
    player_.step([&] { train(input(chunk / 2, number), chunk / 2, order); });
  }
};

class GrowingBatch final : public Shape {
 public:
  explicit GrowingBatch(Player& player) : Shape(player) { add_layers(8, 2 * chunk, true); }
  void step(std::size_t number) override {
    const std::size_t bytes = chunk / 2 + number % 64 * chunk / 16;
    player_.step([&] { train(input(bytes, number), bytes, all_layers()); });
  }
};

class ReplayBuffer final : public Shape {
 public:
  explicit ReplayBuffer(Player& player) : Shape(player) {
    add_layers(4, 3 * chunk, true);
    for (std::size_t l = 0; l < 4; ++l) others_.push_back(player.filled(3 * chunk, 200 + l));  // the target
    others_.push_back(player.filled(10 * chunk, 300));                                         // frames
  }
  void step(std::size_t number) override {
    player_.step([&] {
      for (std::uint64_t n = 0; n < 1 + below(4); ++n) {
        player_.drop(pass(input(chunk / 8, number), weights_));
        player_.changed("copy", {others_.back()});
      }
      if (number % 4 == 3) return;
      player_.drop(pass(player_.made("rows", chunk / 2, {others_.back()}), {others_.begin(), others_.end() - 1}));
      train(player_.made("rows", chunk / 2, {others_.back()}), chunk / 2, all_layers());
      if (number % 8 != 6) return;
      for (std::size_t l = 0; l < 4; ++l) player_.changed("copy", {others_[l]}, {weights_[l]});
    });
  }

 private:
  Tensor pass(Tensor x, const Tensors& through) {
    for (const Tensor w : through) player_.drop(std::exchange(x, player_.made("forward", chunk / 2, {x, w})));
    return x;
  }
};

class MetaLearning final : public Shape {
 public:
  explicit MetaLearning(Player& player) : Shape(player) { add_layers(3, 3 * chunk, true); }
  void step(std::size_t number) override {
    const std::uint64_t tasks = 1 + below(3);
    player_.step([&] {
      std::vector<Tensors> kept;  // each task's copies of the weights, until the outer step's gradient
      for (std::uint64_t task = 0; task < tasks; ++task) {
        kept.push_back(weights_);
        for (std::uint64_t inner = 0; inner < 1 + below(2); ++inner) learn(kept, number);
      }
      for (; !kept.empty(); kept.pop_back())
        if (kept.back() != weights_) drop_all(kept.back());
      for (std::size_t l = 0; l < weights_.size(); ++l) player_.changed("update", {weights_[l], moments_[l]});
    });
  }

 private:
  void learn(std::vector<Tensors>& kept, std::uint64_t mark) {
    Tensor x = input(chunk / 2, mark);
    const Tensors slow = kept.back();
    for (const Tensor w : slow) player_.drop(std::exchange(x, player_.made("forward", chunk / 2, {x, w})));
    Tensors fast;
    for (const Tensor w : slow) fast.push_back(player_.made("inner step", 3 * chunk, {w, x}));
    for (std::size_t l = 0; l < slow.size(); ++l) player_.changed("second order", {fast[l]}, {slow[l]});
    player_.drop(x);
    kept.push_back(fast);
  }
};

class TrainAndGenerate final : public Shape {
 public:
  explicit TrainAndGenerate(Player& player) : Shape(player) { add_layers(6, 2 * chunk, true); }
  void step(std::size_t number) override {
    player_.step([&] {
      train(input(chunk, number), chunk, all_layers());
      if (number % 3 != 2) return;
      Tensors caches;
      for (std::size_t n = 0; n < 4 + number % 4; ++n) word(caches, chunk / 4 + n * chunk / 8);
      drop_all(caches);
    });
  }
};

class AdaptiveSolver final : public Shape {
 public:
  explicit AdaptiveSolver(Player& player) : Shape(player) {
    add_layers(2, 4 * chunk, true);
    others_.push_back(player.filled(chunk, 7));
  }
  void step(std::size_t) override {
    const std::uint64_t evaluations = 2 + below(9);
    player_.step([&] {
      Tensors xs = {others_[0]};
      for (std::uint64_t n = 0; n < evaluations; ++n) {
        const Tensor hidden = player_.made("field", chunk, {xs.back(), weights_[0]});
        xs.push_back(player_.made("field", chunk, {hidden, weights_[1]}));
        player_.drop(hidden);
        if (below(4) != 0) continue;  // else it is too wrong, and the step is halved
        player_.op("error", {xs.back()}, {}, [&] { player_.look(xs.back()); });
        player_.drop(xs.back());
        xs.pop_back();
      }
      for (; xs.size() > 1; xs.pop_back()) {
        for (const std::size_t l : {std::size_t{1}, std::size_t{0}})
          player_.changed("backward", {moments_[l]}, {xs.back(), weights_[l]});
        player_.drop(xs.back());
      }
      for (const std::size_t l : {std::size_t{0}, std::size_t{1}})
        player_.changed("update", {weights_[l]}, {moments_[l]});
    });
  }
};

struct ShapeEntry {
  const char* name;
  std::unique_ptr<Shape> (*make)(Player& player);
};
inline void PrintTo(const ShapeEntry& shape, std::ostream* out) { *out << shape.name; }  // in the names of tests
template <class Kind>
std::unique_ptr<Shape> make_shape(Player& player) {
  return std::make_unique<Kind>(player);
}
inline constexpr std::array<ShapeEntry, 8> irregular_shapes{{{"growing_cache", make_shape<GrowingCache>},
                                                             {"varying_lengths", make_shape<VaryingLengths>},
                                                             {"experts", make_shape<ExpertsDrawn>},
                                                             {"growing_batch", make_shape<GrowingBatch>},
                                                             {"replay_buffer", make_shape<ReplayBuffer>},
                                                             {"meta_learning", make_shape<MetaLearning>},
                                                             {"train_and_generate", make_shape<TrainAndGenerate>},
                                                             {"adaptive_solver", make_shape<AdaptiveSolver>}}};

}  // namespace vedette::testing
