// Operators that need more GPU memory than a guard's budget has. They run with memory beside it, libtorch's own, where
// the device has that; else libtorch's error says so. Results are GpuStorages::allocate()'s, operands are here.
//
// Thread rule: the thread whose operator begins; BesideTheBudget: any thread, each for itself.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace vedette::adapter {

class GpuStorages;

// Where the arguments of an operator exceed the budget, or one of so many parts of it, the largest of them become
// libtorch's own memory, for good. Operands that are held one after the other have room in one piece in half of it.
void let_operands_fit(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments, std::uint64_t parts = 1);

// While it lives, what this thread allocates is libtorch's own memory, beside the budget.
class BesideTheBudget {
 public:
  BesideTheBudget() noexcept;
  ~BesideTheBudget();
  BesideTheBudget(const BesideTheBudget&) = delete;
  BesideTheBudget& operator=(const BesideTheBudget&) = delete;
  static bool here() noexcept;  // one lives
};

}  // namespace vedette::adapter
