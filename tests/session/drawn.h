// A program that is drawn from a seed: phases that change, noise, drift, loops that vary. The same ops whatever plays
// them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "session/player.h"

namespace vedette::testing {

class Drawn {
 public:
  static constexpr std::size_t chunk = 64 << 10;
  static constexpr std::size_t steps = 48;

  Drawn(Player& player, std::uint64_t seed) : player_(player), random_(seed) {
    const std::size_t count = 4 + below(7);
    for (std::size_t l = 0; l < count; ++l) {
      const std::size_t bytes = (1 + below(4)) * chunk;
      weights_.push_back({player.filled(bytes, l), bytes});
      player.is_weight(weights_.back().tensor);
      if (below(2) != 0) moments_.push_back({player.filled(bytes, l + 50), bytes});
    }
    noise_ = below(4) == 0 ? 0 : 4 + below(30);
    drift_ = below(3) == 0 ? below(chunk / 8) : 0;
    batch_ = chunk / 8 + below(2 * chunk);
    next_phase();
  }
  // What a session's memory has to be for half to all of the program.
  static Bytes budget(std::uint64_t seed) { return {(12 + seed % 4 * 6) * chunk}; }

  void run() {
    for (std::size_t s = 0; s < steps; ++s) step(s);
  }
  std::uint64_t state() const {
    std::uint64_t all = 1;
    for (const auto* const each : {&weights_, &moments_})
      for (const Made& made : *each) all = all * 31 + player_.sum(made.tensor);
    return all;
  }
  void drop_all() {
    for (const auto* const each : {&weights_, &moments_})
      for (const Made& made : *each) player_.drop(made.tensor);
  }

 private:
  using Tensor = Player::Tensor;
  struct Made {
    Tensor tensor = 0;
    std::size_t bytes = 0;
  };

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool noisy() { return noise_ != 0 && below(noise_) == 0; }
  void next_phase() {
    order_.clear();
    const std::size_t ops = 3 + below(9);
    for (std::size_t i = 0; i < ops; ++i)
      order_.push_back(below(3) == 0 ? below(weights_.size()) : i % weights_.size());
    trains_ = below(3) != 0;
    loops_ = below(2) == 0;
    varies_ = below(2) == 0;
  }
  void step(std::size_t number) {
    if (number % 16 == 15 && below(2) == 0) next_phase();
    player_.step([&] {
      const std::size_t bytes = std::max<std::size_t>(8, varies_ ? batch_ / 2 + below(batch_) : batch_) / 8 * 8;
      std::vector<Made> made = {{player_.make(bytes, false), bytes}};
      player_.fill(made[0].tensor, number);
      const std::uint64_t times = loops_ ? 1 + below(3) : 1;
      for (std::uint64_t again = 0; again < times; ++again)
        for (const std::size_t l : order_) forward(made, l);
      if (trains_) train(made);
      player_.look(made.back().tensor);
      for (const Made& each : made) player_.drop(each.tensor);
    });
    batch_ += drift_ / 8 * 8;
    if (batch_ > 6 * chunk) batch_ = chunk;
  }
  void train(std::vector<Made>& made) {
    for (; made.size() > 1; made.pop_back()) {
      player_.changed("backward", {made[made.size() - 2].tensor}, {made.back().tensor});
      player_.drop(made.back().tensor);
    }
    for (const std::size_t l : order_)
      if (!noisy()) player_.changed("update", {weights_[l].tensor});
    for (const Made& moment : moments_) player_.changed("update", {moment.tensor});
  }
  void forward(std::vector<Made>& made, std::size_t l) {
    if (noisy()) return;
    const Tensor last = made.back().tensor;
    if (noisy()) player_.op("look", {last}, {}, [&] { player_.look(last); });
    player_.op("forward", {last, weights_[l].tensor}, {}, [&] {
      const Made out{player_.make(made.front().bytes, false), made.front().bytes};
      player_.make_of(out.tensor, {last, weights_[l].tensor});
      if (!trains_) {
        player_.drop(last);
        made.pop_back();
      }
      made.push_back(out);
    });
  }

  Player& player_;
  std::mt19937_64 random_;
  std::vector<Made> weights_, moments_;
  std::vector<std::size_t> order_;
  std::uint64_t noise_ = 0, drift_ = 0, batch_ = 0;
  bool trains_ = true, loops_ = false, varies_ = false;
};

}  // namespace vedette::testing
