// Recipes of operators: how one that RecordFunction announced can run again on other addresses. A recipe keeps the
// operator, its plain arguments, and of tensors address, sizes, strides and type; it holds no reference. Of tensors
// that can never be dropped (small ones, memory outside of the arena) it copies the bytes, up to 64 KiB each.
//
// Under a guard of GPU memory an address is the session's name of a storage. Small tensors of the GPU, which are
// libtorch's own memory, are copied by work that is queued before the operator, so that no host waits.
//
// To run it, tensors are made of addresses, the allocations that became its results are redirected to where they are
// wanted, and the operator is called below autograd, unrecorded. Batch normalisation runs without the running
// statistics that it changes; an op that draws random numbers draws them from a copy of the generator as it was. Where
// a GPU's operator takes no generator the default one is set to that state while it runs.
//
// Operators outside of aten (communication, custom ones) have no recipe. Nor has one that writes a list or a small
// tensor, that draws random numbers on the CPU and takes no generator, or that is given a sparse, quantized or special
// tensor. The workspace of mkldnn_rnn_layer has bytes that are never written, so it has none either.
//
// Thread rule: make() and finish() on the training thread, around the operator; a recipe runs as Recipe says.
#pragma once
#include <ATen/record_function.h>

#include <memory>
#include <unordered_map>

#include "adapter/torch/allocator.h"
#include "adapter/torch/operator_table.h"
#include "vedette/session.h"

namespace vedette::adapter {

class GpuStorages;

class Recipes {
 public:
  Recipes();
  ~Recipes();
  Recipes(Recipes&&) noexcept;
  // Before the operator runs; nullptr: it has none. From here on its allocations are noted.
  std::unique_ptr<Recipe> make(const at::RecordFunction& function, const Operator& op, Session& session,
                               const GpuStorages* gpu);
  // The operator has run; `threw`: it has no results.
  static void finish(std::unique_ptr<Recipe> recipe, Session& session, bool threw);

 private:
  struct Known;
  const Known& known(const at::RecordFunction& function, const Operator& op);

  std::unordered_map<const char*, Known> known_;  // by the address of its name, as in OperatorTable
};

}  // namespace vedette::adapter
