// Wishes of the program: tensors that are to stay in the fastest tier, or to be used in place in the next one. The rest
// of the step is planned without them.
//
// Pure, deterministic. O(tensors + accesses).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "vedette/model.h"

namespace vedette {

enum class Wish : std::uint8_t { none, slow_hint, fast_hint, slow_rule, fast_rule };
// Of tensors that share a chunk: fast if one of them is to be, slow if all are; of these it is a hint if one is.
Wish together(Wish a, Wish b) noexcept;

enum class Heeded : std::uint8_t { none, rules, all };    // of the wishes
Heeded strongest(std::span<const Wish> wishes) noexcept;  // all, where one is a hint
Heeded without_hints(std::span<const Wish> wishes) noexcept;

// The step as policies plan it. Tensors keep their numbers; those that have a place have neither bytes nor uses. No op
// that uses one which the step writes runs again.
struct PlacedStep {
  Trace trace;
  Machine machine;  // with so much less memory as tensors take that stay there over steps
  std::vector<TensorIndex> fast, slow;
  Bytes slow_lacks = {};  // so much of `slow` has no room in the slow tier
};
// nullopt: no tensor has a place. Slow ones are those that persist, where the second tier can be used in place.
std::optional<PlacedStep> with_wishes(const Trace& trace, const Machine& machine, std::span<const Wish> wishes,
                                      Heeded heeded);
// The plan of the whole step, from that of the rest.
Plan with_placed(const PlacedStep& placed, const Trace& trace, Plan plan);

}  // namespace vedette
