// Steps written by hand, of tensors of one page each that live through every step.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "vedette/model.h"

namespace vedette::testing {

inline constexpr std::uint64_t kilo = 4096;

inline Trace step(std::size_t tensors, std::vector<Op> ops) {
  Trace made;
  for (std::size_t t = 0; t < tensors; ++t)
    made.tensors.push_back({.name = "t", .bytes = {kilo}, .kind = TensorKind::weight, .persistent = true});
  made.ops = std::move(ops);
  return made;
}

inline Op op(std::int64_t ns, std::vector<TensorIndex> reads, std::vector<TensorIndex> writes = {}) {
  Op made;
  made.time = {ns};
  made.reads = std::move(reads);
  made.writes = std::move(writes);
  return made;
}

}  // namespace vedette::testing
