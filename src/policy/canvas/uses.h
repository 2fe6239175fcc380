// When each tensor is used, born and dead, from a trace, for planner and rehearsal. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/grouped.h"
#include "vedette/model.h"

namespace vedette::planning {

struct Use {
  std::uint32_t op = 0;
  bool write = false;  // the op changes the bytes; slower copies are stale after it
};

struct TensorUses {
  std::vector<Use> uses;  // by op, each op once
  bool persistent = false;
  std::uint32_t birth = 0;  // op of the first access (not persistent)
  std::uint32_t death = 0;  // op after which the bytes are gone (not persistent)
};

struct Uses {
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  std::vector<TensorUses> tensors;
  sim::Grouped operands;  // of each op, sorted, unique
  sim::Grouped births;    // tensors born in each op (not persistent)
  sim::Grouped deaths;    // tensors dead after each op (not persistent)
  // Operands of all ops one after the other; in this order tensors go by their use, those of one use by number.
  std::vector<std::uint32_t> first_operand;  // [op]: where its operands begin; one more entry at the end
  std::vector<std::uint32_t> op_of;          // [operand]
  std::vector<std::uint32_t> tensor_of;      // [operand]
  // [operand]: where the tensor is used next, counted on into the next step; or never
  std::vector<std::uint32_t> next;
  std::vector<char> changes;  // [operand]: the op writes it
};

Uses uses_of(const Trace&);

// `bytes` rounded up to a multiple of `granule` (0 counts as 1).
constexpr std::uint64_t rounded(std::uint64_t bytes, std::uint64_t granule) noexcept {
  return granule == 0 ? bytes : (bytes + granule - 1) / granule * granule;
}

}  // namespace vedette::planning
