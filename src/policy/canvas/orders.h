// Other orders of a step's ops, all of which keep its dependences: schedules by lists, and the changes that a search
// makes to one. Pure; one thread at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/model.h"

namespace vedette::planning {

using Order = std::vector<OpIndex>;

class Orders {
 public:
  explicit Orders(const Trace& trace);  // which outlives it

  Order traced() const;
  // By a dozen rules: of the ops that may run next, the one that adds least to memory, or misses least in a memory of
  // this size, or frees memory. A schedule begins with the step's first op, or backwards with its last. O(ops *
  // accesses) at most.
  std::vector<Order> listed(Bytes capacity) const;
  // The first ops of one, the others in the order of another.
  Order joined(const Order& first, std::size_t cut, const Order& then) const;
  // The op at place `from` comes to place `to`, and with it what stands between and has to stay on its side.
  void move(Order& order, std::size_t from, std::size_t to) const;

 private:
  enum class Rule : std::uint8_t { grows_least, misses_least, frees };
  struct Listing {
    Rule rule = Rule::grows_least;
    std::uint32_t window = 0;  // ops that a scheduled one may overtake, by the traced order
    bool backwards = false;
    Bytes capacity;
  };
  class Memory;
  Order list(const Listing& how) const;

  const Trace& trace_;
  std::vector<std::vector<OpIndex>> before_, after_;  // [op]: those that it has to follow, and that have to follow it
};

}  // namespace vedette::planning
