// Operands and results of an op on a GPU that are below a guard's smallest size: libtorch's own allocator has them, and
// they never move. A step that may become a profile has them all the same, so that the profile knows what each layer
// uses.
//
// Thread rule: the thread whose op runs.
#pragma once
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include "adapter/torch/operators.h"
#include "vedette/session.h"

namespace vedette::adapter {

class SmallOperands {
 public:
  SmallOperands() = default;  // wants none
  explicit SmallOperands(const Announcer& owner);
  void add(const c10::StorageImpl& storage, bool written);
  void tell() const;  // the session, in whose op it is called

 private:
  const Announcer* owner_ = nullptr;
  c10::SmallVector<Session::UseBeside, 4> uses_;
};

}  // namespace vedette::adapter
