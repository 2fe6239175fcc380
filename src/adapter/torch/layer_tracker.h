// Says which layer an op belongs to when it begins. A forward op that uses a parameter starts that parameter's layer. A
// backward op belongs to the layer of the forward op that made its autograd node: they share a sequence number. Ops
// without gradients after a backward pass are the optimizer's.
//
// Knows no libtorch. Thread rule: the training thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vedette/model.h"

namespace vedette::adapter {

class LayerTracker {
 public:
  struct Mark {
    std::string_view name;  // lives until the next begin_step()
    Phase phase = Phase::forward;
    bool operator==(const Mark&) const = default;
  };
  struct OpSeen {
    std::optional<LayerIndex> parameter;  // the layer of the first watched parameter among its operands
    std::int64_t sequence = -1;           // of the autograd node it may make; -1: none
    bool gradients_on = true;             // autograd records
  };

  static constexpr std::size_t most_passing = 4096;  // names of the user's own layers that are kept from step to step

  LayerIndex intern(std::string_view name);  // kept as long as the tracker

  void begin_step();
  // The layer that starts with this op, nullopt while the last one goes on.
  std::optional<Mark> begin_op(const OpSeen& op);

  Phase phase() const noexcept { return phase_; }  // of the last op

  // of the node that begins; -1: unknown (a gradient is accumulated). Nodes nest
  void begin_backward(std::int64_t sequence);
  void end_backward();

  void begin_named(std::string_view name);  // the user's own layer, until end_named(); these nest
  void end_named();

 private:
  std::optional<LayerIndex> made_by(std::int64_t sequence) const;

  LayerIndex number_of(std::string_view name);

  std::vector<const std::string*> names_;  // keys of index_; nullptr: no name has the number
  std::unordered_map<std::string, LayerIndex> index_;
  std::vector<bool> kept_;                                 // by number
  std::size_t passing_ = 0;                                // numbers of names that are not kept
  std::vector<LayerIndex> unused_;                         // numbers
  std::vector<std::pair<std::int64_t, LayerIndex>> made_;  // (sequence, layer) of ops of this step, ascending
  std::vector<std::int64_t> nodes_;                        // backward nodes that run, outermost first
  std::vector<LayerIndex> named_;
  std::optional<LayerIndex> layer_;  // now
  Phase phase_ = Phase::forward;
  bool backward_seen_ = false;  // in this step
};

}  // namespace vedette::adapter
