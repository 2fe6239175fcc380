// A collective operation of c10d's that is under way, on one tensor: the network's threads read and write its memory
// after the op has ended. Until then it is pinned, as far as a quarter of the budget reaches: the rest is for ops.
// Memory that does not fit is served by page faults. Where a system call into memory that is away fails, it is sent
// from a copy in ordinary memory, beside the budget. Thread rule: the training thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "vedette/distributed.h"

namespace vedette::adapter {

class Collective {
 public:
  // Of a dense tensor, in place. All ranks begin the same ones in the same order.
  static Collective sum(const Ranks& ranks, at::Tensor tensor);
  static Collective sum_at(const Ranks& ranks, int owner, at::Tensor tensor);  // the others' tensors are of no use then
  static Collective largest(const Ranks& ranks, at::Tensor tensor);
  static Collective copy_from(const Ranks& ranks, int owner, at::Tensor tensor);

  void wait();  // throws c10d's exceptions, of a lost rank for instance

 private:
  explicit Collective(at::Tensor tensor);
  void pin_or_copy(Session& session);
  struct Pin;
  struct Unpin {
    void operator()(Pin* pin) const noexcept;
  };
  at::Tensor tensor_, sent_;  // the same, unless c10d gets a copy
  std::unique_ptr<Pin, Unpin> pin_;
  c10::intrusive_ptr<c10d::Work> work_;  // nullptr: done
};

}  // namespace vedette::adapter
