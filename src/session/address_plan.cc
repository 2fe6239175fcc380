// A zone for a plan's temporaries: see address_plan.h.
#include "session/address_plan.h"

#include <algorithm>
#include <utility>

#include "pack/coallocate.h"

namespace vedette::detail {
namespace {

struct Temporary {
  Lifetime life;
  std::uint32_t tensor = 0;  // of the log
};

bool ends(const LoggedTensor& t) { return t.death != ~0u || t.dies_at_seam; }

bool lasts(const LoggedTensor& t, const Arena& arena) { return t.death == ~0u && arena.lasts(t.offset); }

// In order of birth. One that dies before the next step's first op lives to the end of this one, and each such to an
// event of its own.
std::vector<Temporary> temporaries(const StepLog& log, std::uint32_t events, const Arena& arena,
                                   std::uint32_t settled) {
  std::vector<Temporary> found;
  for (std::uint32_t i = 0; i < log.tensors.size(); ++i) {
    const LoggedTensor& t = log.tensors[i];
    if (t.birth <= settled || !ends(t) || lasts(t, arena)) continue;
    found.push_back({{.bytes = t.bytes, .life = {t.birth, t.death == ~0u ? events + 1 + i : t.death}}, i});
  }
  std::sort(found.begin(), found.end(),
            [](const Temporary& a, const Temporary& b) { return a.life.life.begin < b.life.life.begin; });
  return found;
}

// An address is a name where tensors are given places: no two tensors of the step share one.
Placement end_to_end(const std::vector<Lifetime>& lives, Bytes chunk) {
  Placement placement;
  for (const Lifetime& life : lives) {
    placement.offset.push_back(placement.zone_bytes);
    placement.zone_bytes += (life.bytes.value + chunk.value - 1) / chunk.value * chunk.value;
  }
  return placement;
}

}  // namespace

AddressPlan::AddressPlan(StepLog& log, std::uint32_t events, Arena& arena, Bytes chunk, Heap::Chunks use,
                         std::uint32_t settled) {
  const std::vector<Temporary> moved = temporaries(log, events, arena, settled);
  // The n-th allocation of a size, in order of birth.
  std::map<std::uint64_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> births;
  for (std::uint32_t i = 0; i < log.tensors.size(); ++i) {
    const LoggedTensor& t = log.tensors[i];
    if (t.birth > 0 && !lasts(t, arena)) births[t.bytes.value].emplace_back(t.birth, i);
  }
  std::vector<Lifetime> lives;
  for (const Temporary& t : moved) lives.push_back(t.life);
  const Placement placement = use == Heap::Chunks::shared ? coallocate(lives, chunk) : end_to_end(lives, chunk);
  const std::uint64_t bytes = std::max<std::uint64_t>(placement.zone_bytes, chunk.value);
  const auto zone = arena.reserve_zone(bytes);
  if (!zone) return;
  zone_ = *zone;
  zone_bytes_ = bytes;
  std::vector<char> in_zone(log.tensors.size());
  for (std::size_t k = 0; k < moved.size(); ++k) {
    log.tensors[moved[k].tensor].offset = zone_ + placement.offset[k];
    in_zone[moved[k].tensor] = 1;
  }
  for (auto& [size, list] : births) {
    std::sort(list.begin(), list.end());
    for (const auto& [birth, tensor] : list)
      addresses_[size].push_back({.offset = log.tensors[tensor].offset, .in_zone = in_zone[tensor] != 0});
  }
}

std::optional<AddressPlan::Address> AddressPlan::nth(std::uint64_t bytes, std::uint32_t n) const {
  const auto list = addresses_.find(bytes);
  if (list == addresses_.end() || n >= list->second.size()) return std::nullopt;
  return list->second[n];
}

}  // namespace vedette::detail
