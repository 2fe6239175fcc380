// A plan by ops: the moves issued and due around each op, its operands used in place, and the recomputations before it.
// Pure.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::sim {

// Numbers by op, in one row.
class ByOp {
 public:
  // `op_of(i)` of each entry i of `entries`, below `ops`; `value_of(i)` is its number. Entries of one op keep their
  // order.
  template <class OpOf, class ValueOf>
  ByOp(std::size_t ops, std::size_t entries, const OpOf& op_of, const ValueOf& value_of)
      : first_(ops + 1), values_(entries) {
    for (std::size_t i = 0; i < entries; ++i) ++first_[op_of(i)];
    std::uint32_t sum = 0;
    for (std::uint32_t& each : first_) each = sum += each;
    for (std::size_t i = entries; i-- > 0;) values_[--first_[op_of(i)]] = static_cast<std::uint32_t>(value_of(i));
  }
  std::span<const std::uint32_t> operator[](std::size_t op) const {
    return {values_.data() + first_[op], first_[op + 1] - first_[op]};
  }

 private:
  std::vector<std::uint32_t> first_, values_;  // [op]: where its values begin; one more entry at the end
};

struct Schedule {
  ByOp issued, due;           // indices into Plan::moves
  ByOp in_place;              // tensors
  ByOp recomputed;            // indices into Plan::recomputations
  std::vector<Op> producers;  // [op], where something is recomputed
  std::vector<char> barrier;  // [op]: it waits for all evictions; empty: no op does
};

// Errors: unsupported where a replay cannot follow the plan, malformed_input where the plan names an op or tensor that
// does not exist.
Result<Schedule> schedule(const Trace& trace, const Machine& machine, const Plan& plan);

// The pages that each op touches. Where none were tracked, an op touches all of each operand.
class TouchedPages {
 public:
  explicit TouchedPages(const Trace& trace);
  // Whether the op touches one of these bytes of the tensor, which is an operand of it.
  bool touches(std::uint32_t op, std::uint32_t tensor, Span<std::uint64_t> bytes) const {
    return first_access_.empty() || look_up(op, tensor, bytes);
  }

 private:
  bool look_up(std::uint32_t op, std::uint32_t tensor, Span<std::uint64_t> bytes) const;

  const Trace& trace_;
  std::vector<std::uint32_t> first_access_;  // of each op, into Trace::pages; empty where no pages are known
};

}  // namespace vedette::sim
