// Tensors, ops and traces in a few words, for tests that write their programs out.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "vedette/model.h"

namespace vedette::testing {

inline Tensor tensor(std::uint64_t bytes, bool persistent = true) {
  return {.name = "t", .bytes = {bytes}, .kind = TensorKind::weight, .persistent = persistent};
}

inline Op op(std::int64_t time, std::vector<TensorIndex> reads, std::vector<TensorIndex> writes = {}) {
  Op made;
  made.name = "op";
  made.time = {time};
  made.reads = std::move(reads);
  made.writes = std::move(writes);
  return made;
}

inline Trace trace(std::vector<Tensor> tensors, std::vector<Op> ops) {
  Trace made;
  made.tensors = std::move(tensors);
  made.ops = std::move(ops);
  return made;
}

}  // namespace vedette::testing
