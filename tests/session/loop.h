// A pretended training loop whose every byte is known: layers forward, gradients backward, an optimizer. Integer
// arithmetic, so that any lost or torn byte changes the result.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "vedette/session.h"

namespace vedette::testing {

// 64-bit words in the arena, released at the end of their scope.
class Block {
 public:
  Block() = default;
  Block(Session& session, std::size_t bytes, bool persistent = false)
      : words_(reinterpret_cast<std::uint64_t*>(session
                                                    .allocate({.bytes = {bytes},
                                                               .alignment = {64},
                                                               .name = {},
                                                               .kind = TensorKind::activation,
                                                               .persistent = persistent})
                                                    .value())),
        count_(bytes / 8) {}
  Block(Block&& other) noexcept
      : words_(std::exchange(other.words_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(words_, other.words_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Block() { Session::release(reinterpret_cast<std::byte*>(words_)); }

  std::uint64_t& operator[](std::size_t i) { return words_[i]; }
  const std::uint64_t& operator[](std::size_t i) const { return words_[i]; }
  std::size_t count() const { return count_; }
  const void* address() const { return words_; }
  std::uint64_t sum() const { return std::accumulate(words_, words_ + count_, std::uint64_t{0}); }
  void fill(std::uint64_t mark) {
    for (std::size_t i = 0; i < count_; ++i) words_[i] = mark * 1'000'003 + i;
  }
  bool holds(std::uint64_t mark) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (words_[i] != mark * 1'000'003 + i) return false;
    return true;
  }
  void drop() { Block dead(std::move(*this)); }

 private:
  std::uint64_t* words_ = nullptr;
  std::size_t count_ = 0;
};

// out[i] = 3 a[i] + b[n - 1 - i], again.
class CombineAgain final : public Recipe {
 public:
  CombineAgain(const Block& a, const Block& b, const Block& out)
      : operands_{static_cast<const std::byte*>(a.address()), static_cast<const std::byte*>(b.address()),
                  static_cast<const std::byte*>(out.address())},
        count_(out.count()) {}
  bool run(std::span<const Place> places) noexcept override {
    std::array<std::uint64_t*, 3> at{};
    for (std::size_t k = 0; k < at.size(); ++k) {
      const std::byte* lies = operands_[k];
      bool moved = false;
      for (const Place& place : places)
        if (place.was == operands_[k]) lies = place.now, moved = true;
      if (k == 2 && !moved) return false;
      at[k] = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(lies));
    }
    for (std::size_t i = 0; i < count_; ++i) at[2][i] = at[0][i] * 3 + at[1][count_ - 1 - i];
    ++runs;
    return true;
  }
  bool uses(const std::byte*, Bytes) const noexcept override { return true; }
  std::uint64_t signature() const noexcept override { return count_; }
  static inline std::atomic<std::uint64_t> runs = 0;

 private:
  const std::array<const std::byte*, 3> operands_;
  const std::size_t count_;
};

class Loop {
 public:
  Loop(Session& session, std::size_t layers, std::size_t bytes) : session_(session), bytes_(bytes) {
    for (std::size_t l = 0; l < layers; ++l) {
      weights_.emplace_back(session_, bytes_, true);
      moments_.emplace_back(session_, bytes_, true);
      weights_[l].fill(l);
      moments_[l].fill(l + 100);
    }
  }

  // "layer0.weight", "layer0.moment", and so on.
  void give_names() {
    for (std::size_t l = 0; l < weights_.size(); ++l) {
      const std::string layer = "layer" + std::to_string(l);
      session_.label(weights_[l].address(), layer + ".weight", TensorKind::weight);
      session_.label(moments_[l].address(), layer + ".moment", TensorKind::optimizer);
    }
  }

  // Tells the session how its ops run again.
  void give_recipes() {
    recipes_ = true;
    for (const Block& weight : weights_) session_.label(weight.address(), "weight", TensorKind::weight);
  }

  // Called inside each op, with its number in the step; may throw, which leaves the step.
  std::function<void(std::size_t)> in_op = [](std::size_t) {};
  std::function<void()> before_end = [] {};  // inside the step, after its last op

  // `layers`: how many of them take part; another number is another sequence of ops.
  std::uint64_t step(std::uint64_t input, std::size_t layers) {
    auto scope = session_.step();
    op_ = 0;
    std::vector<Block> activations;
    activations.emplace_back(session_, bytes_);
    activations[0].fill(input);
    for (std::size_t l = 0; l < layers; ++l) activations.push_back(combine("forward", activations.back(), weights_[l]));
    Block gradient = combine("loss", activations.back(), activations.back());
    const std::uint64_t loss = gradient.sum();
    std::vector<Block> gradients;
    for (std::size_t l = layers; l-- > 0;) {
      gradients.push_back(combine("weight_gradient", gradient, activations[l]));
      gradient = combine("backward", gradient, weights_[l]);
      activations[l + 1].drop();
    }
    activations[0].drop();
    gradient.drop();
    for (std::size_t l = 0; l < layers; ++l) update(weights_[l], moments_[l], gradients[layers - 1 - l]);
    gradients.clear();
    before_end();
    return loss;
  }
  std::uint64_t step(std::uint64_t input) { return step(input, weights_.size()); }
  std::uint64_t state() const {
    std::uint64_t all = 0;
    for (const Block& b : weights_) all = all * 31 + b.sum();
    for (const Block& b : moments_) all = all * 31 + b.sum();
    return all;
  }

 private:
  Block combine(std::string_view name, const Block& a, const Block& b) {
    const void* reads[] = {a.address(), b.address()};
    auto op = session_.op(name, reads, {});
    Block out(session_, bytes_);
    in_op(op_++);
    for (std::size_t i = 0; i < out.count(); ++i) out[i] = a[i] * 3 + b[out.count() - 1 - i];
    if (recipes_ && session_.wants_recipe()) session_.keep_recipe(std::make_unique<CombineAgain>(a, b, out));
    return out;
  }
  void update(Block& w, Block& m, const Block& g) {
    const void* reads[] = {g.address()};
    const void* writes[] = {w.address(), m.address()};
    auto op = session_.op("update", reads, writes);
    in_op(op_++);
    for (std::size_t i = 0; i < w.count(); ++i) m[i] = m[i] * 5 + g[i], w[i] -= m[i];
  }
  Session& session_;
  std::size_t bytes_, op_ = 0;
  bool recipes_ = false;
  std::vector<Block> weights_, moments_;
};

struct Outcome {
  std::vector<std::uint64_t> losses;
  std::uint64_t state = 0;
  Counters counters;
  std::vector<std::string> messages;
  bool operator==(const Outcome& other) const { return losses == other.losses && state == other.state; }
};

inline std::unique_ptr<Session> open_session(Bytes budget, const std::string& slow, const std::string& policy,
                                             Bytes chunk = {64 << 10}, Observer* observer = nullptr,
                                             std::vector<std::string>* messages = nullptr) {
  return Session::open({.fast_memory = budget,
                        .slow = slow,
                        .policy = policy,
                        .chunk = chunk,
                        .observer = observer,
                        .on_message =
                            [messages](std::string_view m) {
                              if (messages != nullptr) messages->emplace_back(m);
                            }})
      .value();
}

}  // namespace vedette::testing
