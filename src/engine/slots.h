// Slots of the slow tiers, given to chunks that leave and taken back when they come or die. The lowest free one is
// given, so that used slots stay dense and the rest of the store can be given back. Pure; the owner's lock guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "tier/store.h"

namespace vedette {

class Slots {
 public:
  SlotIndex take() {
    while (lowest_free_ < in_use_.size() && in_use_[lowest_free_]) ++lowest_free_;
    if (lowest_free_ == in_use_.size()) in_use_.push_back(false);
    in_use_[lowest_free_] = true;
    ++used_;
    return {lowest_free_++};
  }
  void give_back(SlotIndex slot) {
    VEDETTE_ASSERT(slot.value < in_use_.size() && in_use_[slot.value]);
    in_use_[slot.value] = false;
    --used_;
    given_back_.push_back(slot);
    lowest_free_ = std::min(lowest_free_, slot.value);
    while (!in_use_.empty() && !in_use_.back()) in_use_.pop_back();
    lowest_free_ = std::min(lowest_free_, limit());
  }
  // Those given back since the last call, for the store to forget. Some may be in use again.
  std::vector<SlotIndex> take_given_back() { return std::exchange(given_back_, {}); }
  std::uint32_t used() const noexcept { return used_; }
  std::uint32_t limit() const noexcept { return static_cast<std::uint32_t>(in_use_.size()); }  // one past the highest
  // Many below the limit are free: a chunk that is written anyway should take a lower slot.
  bool sparse() const noexcept { return limit() > 2 * used_ + 16; }

 private:
  std::vector<bool> in_use_;
  std::vector<SlotIndex> given_back_;
  std::uint32_t lowest_free_ = 0, used_ = 0;
};

}  // namespace vedette
