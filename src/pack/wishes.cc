// Tensors that have their place, and the step without them: see wishes.h.
#include "pack/wishes.h"

#include <algorithm>
#include <utility>

#include "base/arithmetic.h"

namespace vedette {
namespace {

constexpr bool is_fast(Wish wish) noexcept { return wish == Wish::fast_hint || wish == Wish::fast_rule; }
constexpr bool is_rule(Wish wish) noexcept { return wish >= Wish::slow_rule; }

bool lists(const std::vector<TensorIndex>& operands, TensorIndex t) {
  return std::binary_search(operands.begin(), operands.end(), t);
}

// Its bytes count for the ops of its life, from the first that writes it.
void take_room_while_alive(Trace& trace, TensorIndex t, Bytes bytes) {
  bool lives = false;
  for (Op& op : trace.ops) {
    lives |= lists(op.writes, t);
    if (lives) op.workspace += bytes;
    if (lists(op.frees, t)) return;
  }
}

}  // namespace

Wish together(Wish a, Wish b) noexcept {
  if (is_fast(a) || is_fast(b)) return !is_fast(a) ? b : !is_fast(b) ? a : std::max(a, b);
  return std::min(a, b);
}

Heeded without_hints(std::span<const Wish> wishes) noexcept {
  return std::ranges::any_of(wishes, is_rule) ? Heeded::rules : Heeded::none;
}

Heeded strongest(std::span<const Wish> wishes) noexcept {
  const bool hints = std::ranges::any_of(wishes, [](Wish wish) { return wish != Wish::none && !is_rule(wish); });
  return hints ? Heeded::all : without_hints(wishes);
}

std::optional<PlacedStep> with_wishes(const Trace& trace, const Machine& machine, std::span<const Wish> wishes,
                                      Heeded heeded) {
  if (heeded == Heeded::none) return std::nullopt;
  const bool in_place = machine.tiers.size() > 1 && machine.tiers[1].addressable;
  const auto has_place = [&](std::size_t t) {
    if (wishes[t] == Wish::none || (heeded == Heeded::rules && !is_rule(wishes[t]))) return false;
    return is_fast(wishes[t]) || (in_place && trace.tensors[t].persistent);
  };
  std::vector<bool> placed(trace.tensors.size());
  for (std::size_t t = 0; t < wishes.size(); ++t) placed[t] = has_place(t);
  if (std::ranges::find(placed, true) == placed.end()) return std::nullopt;
  PlacedStep step{.trace = trace, .machine = machine, .fast = {}, .slow = {}};
  std::vector<bool> changes(placed.size());
  for (const Op& op : trace.ops)
    for (const TensorIndex t : op.writes) changes[t.value] = placed[t.value];
  const std::uint64_t granule = std::max<std::uint64_t>(1, machine.granule.value);
  for (std::uint32_t t = 0; t < placed.size(); ++t) {
    if (!placed[t]) continue;
    (is_fast(wishes[t]) ? step.fast : step.slow).push_back({t});
    Bytes& bytes = step.trace.tensors[t].bytes;
    const Bytes taken{round_up(bytes.value, granule)};
    bytes = {};
    Bytes& room = step.machine.tiers[is_fast(wishes[t]) ? 0 : 1].capacity;
    if (!is_fast(wishes[t])) {
      step.slow_lacks += taken - std::min(room, taken);
      room = room - std::min(room, taken);
      continue;
    }
    trace.tensors[t].persistent ? void(room = room - std::min(room, taken))
                                : take_room_while_alive(step.trace, {t}, taken);
  }
  for (Op& op : step.trace.ops) {
    const auto changed = [&](TensorIndex t) { return changes[t.value]; };
    if (std::ranges::any_of(op.reads, changed) || std::ranges::any_of(op.writes, changed)) op.runs_again = false;
    for (auto* const list : {&op.reads, &op.writes, &op.frees})
      std::erase_if(*list, [&](TensorIndex t) { return placed[t.value]; });
  }
  return step;
}

Plan with_placed(const PlacedStep& placed, const Trace& trace, Plan plan) {
  plan.home.resize(trace.tensors.size());
  for (const TensorIndex t : placed.fast) plan.home[t.value] = {0};
  for (const TensorIndex t : placed.slow) plan.home[t.value] = {1};
  std::erase_if(plan.moves,
                [&](const Move& move) { return placed.trace.tensors[move.extent.tensor.value].bytes.value == 0; });
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op)
    for (const TensorIndex t : placed.slow)
      if (lists(trace.ops[op].reads, t) || lists(trace.ops[op].writes, t))
        plan.in_place.push_back({.op = {op}, .tensor = t, .tier = {1}});
  std::ranges::sort(plan.in_place, {}, [](const InPlace& each) { return std::pair(each.op, each.tensor); });
  return plan;
}

}  // namespace vedette
