// Announces the operators of the training thread to the session: RecordFunction tells when one begins and ends and what its inputs
// are, the operator's schema which of them it writes, the watched parameters to which layer it belongs.
//
// The callback is registered with libtorch once and is off while no guard lives. It acts on the thread that is inside a step and on
// the outermost operator there, so that threads of the user's own, data loaders for instance, are left alone.
// Thread rule: everything here belongs to the training thread.
#pragma once
#include "adapter/torch/layer_tracker.h"
#include "adapter/torch/operator_table.h"
#include "adapter/torch/watched.h"
#include "vedette/session.h"

namespace vedette::adapter {

struct Announcer {                   // what the callback works on; one per guard
  Session& session;
  const Watched& watched;
  LayerTracker& layers;
  OperatorTable table = {};
  bool in_op = false;
};

void listen_to_operators(bool on);   // while a guard lives; throws nothing, changes nothing when it is so already

// While this lives its thread's operators are announced.
class [[nodiscard("announces for the scope it lives in")]] Announcing {
 public:
  explicit Announcing(Announcer& announcer) noexcept;
  ~Announcing();
  Announcing(const Announcing&) = delete;
  Announcing& operator=(const Announcing&) = delete;

 private:
  Announcer* before_;
};

}  // namespace vedette::adapter
