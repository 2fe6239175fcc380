// The bytes that links, the buses that they share and the host's memory can still carry in the tick at hand; a block
// that begins may overdraw them. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/model.h"

namespace vedette::sim {

class Meters {
 public:
  // A tick is as long as the fastest link takes for one block.
  Meters(const Machine& machine, Bytes block);

  std::int64_t tick_ns() const { return tick_ns_; }
  struct Refilled {
    bool free = true;     // every link is
    bool opened = false;  // one was overdrawn, and is not any more
  };
  Refilled refill();  // where a tick begins
  // So many ticks without a transfer leave overdrawn what is overdrawn now. Endless where nothing is.
  std::int64_t ticks_alike() const;
  void pass(std::int64_t ticks);  // at most so many, as refill() would
  bool joined(std::uint8_t source, std::uint8_t target) const { return link_[at(source, target)] != none; }
  bool open(std::uint8_t source, std::uint8_t target) const;
  void carry(std::uint64_t bytes, std::uint8_t source, std::uint8_t target);

 private:
  static constexpr std::uint32_t none = ~0U;
  struct Meter {
    std::uint64_t bytes_per_s = 0;  // 0: no limit
    std::int64_t more = 1;          // a tick
    std::int64_t left = 0;
    bool spent() const { return bytes_per_s != 0 && left <= 0; }
  };

  std::size_t at(std::size_t source, std::size_t target) const { return source * tiers_ + target; }
  bool spent(std::uint32_t meter) const { return meter != none && meters_[meter].spent(); }

  std::size_t tiers_;
  std::vector<Meter> meters_;
  std::vector<std::uint32_t> link_, bus_, host_;  // [source x target]
  std::int64_t tick_ns_ = 1;
};

}  // namespace vedette::sim
