// The bar of an op, a wait or a recomputation, for Replayed::timeline. Pure.
#pragma once
#include <cstdint>

#include "vedette/replay.h"

namespace vedette::sim {

inline Bar bar_of_op(Bar::Kind kind, std::uint32_t op, Span<std::int64_t> time) {
  return {.kind = kind, .op = {op}, .time = {{time.begin}, {time.end}}};
}

}  // namespace vedette::sim
