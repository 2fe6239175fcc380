// The policy of a simulation: the state that it sees, and its moves as the simulation carries them out. Pure.
#pragma once
#include <vector>

#include "sim/inputs.h"
#include "sim/traffic.h"

namespace vedette::sim {

class Listener {
 public:
  Listener(const Inputs& in, Traffic& traffic) : in_(in), traffic_(traffic) {}
  void prepare();  // after Traffic::prepare()

  bool listens() const { return in_.policy != nullptr; }
  Reaction tell(const Event& event);
  void obey(const Reaction& reaction);            // queues its moves
  std::uint32_t moves() const { return moves_; }  // that the policy asked for so far
  void hear(const Event& event) {
    if (listens()) obey(tell(event));
  }

 private:
  const Inputs& in_;
  Traffic& traffic_;
  std::uint32_t moves_ = 0;
  std::vector<TierIndex> where_;
  std::vector<Bytes> room_;
  std::vector<PlacedExtent> extents_;
};

}  // namespace vedette::sim
