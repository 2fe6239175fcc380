// Operators that need more GPU memory than a guard's budget has. They run with memory beside it, libtorch's own, where
// the device has that; else libtorch's error says so. Results are GpuStorages::allocate()'s, operands are here: those
// that are larger than the budget before the op begins, those that have no room beside what stays as it begins
// (GpuStorages::no_room).
//
// Thread rule: the thread whose operator begins; BesideTheBudget: any thread, each for itself.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <exception>
#include <vector>

namespace vedette::adapter {

class GpuStorages;

// Where the arguments of an operator exceed the budget, or one of so many parts of it, the largest of them become
// libtorch's own memory, for good. Operands that are held one after the other have room in one piece in half of it.
// Returns libtorch's own error where the device has no room for them; nullptr: they fit. `but_for`: an argument of
// which few bytes are used, wherever it lies (rows.h); -1: there is none.
std::exception_ptr let_operands_fit(GpuStorages& gpu, c10::ArrayRef<const c10::IValue> arguments,
                                    std::uint64_t parts = 1, int but_for = -1);

inline void throw_if_any(const std::exception_ptr& error) {
  if (error != nullptr) std::rethrow_exception(error);
}

// While it lives, each allocation of this thread throws the error, and so does each pointer with which an operator asks
// to write to one of the arguments. An operator without room for its operands ends so before its first kernel, and its
// arguments are as they were. libtorch swallows what a callback throws.
class Refused {
 public:
  Refused(std::exception_ptr error, c10::ArrayRef<const c10::IValue> arguments);
  ~Refused();
  Refused(const Refused&) = delete;
  Refused& operator=(const Refused&) = delete;
  static void throw_here();  // where one lives
  // This libtorch says when an argument is about to be written; else an operator that writes cannot be refused.
  static bool writes_too() noexcept;

 private:
  const std::exception_ptr outer_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> arguments_;
};

// Why the op that this thread has just begun runs without its operands; nullptr: it has them.
std::exception_ptr take_refusal() noexcept;

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
