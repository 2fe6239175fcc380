// The order in which blocks came to the fastest tier, and the place in it where the next victim is looked for. Pure.
#pragma once
#include <cstdint>
#include <vector>

namespace vedette::sim {

class Arrivals {
 public:
  static constexpr std::uint32_t none = ~0U;

  explicit Arrivals(std::size_t blocks) : before_(blocks, none), after_(blocks, none) {}

  void arrives(std::uint32_t block) {
    before_[block] = last_;
    after_[block] = none;
    (last_ == none ? first_ : after_[last_]) = block;
    last_ = block;
  }
  void leaves(std::uint32_t block) {
    (before_[block] == none ? first_ : after_[before_[block]]) = after_[block];
    (after_[block] == none ? last_ : before_[after_[block]]) = before_[block];
    if (base_ == block) base_ = first_;
  }

  std::uint32_t first() const { return first_; }  // none: no block is there
  std::uint32_t after(std::uint32_t block) const { return after_[block]; }
  std::uint32_t base() const { return base_; }  // a block that is there, or none
  void look_from(std::uint32_t block) { base_ = block; }

 private:
  std::vector<std::uint32_t> before_, after_;
  std::uint32_t first_ = none, last_ = none, base_ = none;
};

}  // namespace vedette::sim
