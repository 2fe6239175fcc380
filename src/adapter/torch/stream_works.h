// Memory that a collective of c10d uses on a GPU after its operator has returned, on a stream of its own. Moves of its
// operands, and what takes their places, are ordered behind it by an event. What one process sends to another in a
// group of calls is queued as the group ends, and has no event before: it stays in place until the step ends.
//
// Thread rule: the thread whose operator runs; let_exchanges_go() belongs to the training thread.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace vedette::adapter {

bool is_of_c10d(std::string_view function) noexcept;  // by its name; these alone give works

// A function of c10d's, from before it runs until it has returned.
class StreamWork {
 public:
  StreamWork(const char* function, c10::ArrayRef<const c10::IValue> arguments);
  // It has queued its work. Ends the process with a sentence where that is ordered by no stream.
  void queued(c10::ArrayRef<c10::IValue> results);

 private:
  const char* function_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> operands_;  // empty: none is a guard's
};

// Moves of the tensors that were sent and received in the group go behind its work. To be called as it ends, by the
// thread that made it. Without the call the tensors stay in place until the step ends, and no longer.
void a_group_of_works_ended(c10d::Work&);

// A step begins or ends, or the guard ends.
void let_exchanges_go() noexcept;

}  // namespace vedette::adapter
