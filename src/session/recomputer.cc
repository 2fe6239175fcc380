// Recipes are tried: see recomputer.h.
#include "session/recomputer.h"

#include <algorithm>
#include <mutex>
#include <optional>

namespace vedette::detail {

ChunkRange Recomputer::chunks_of(std::uint32_t tensor) const {
  const LoggedTensor& t = session_.logger.log().tensors[tensor];
  return session_.arena.chunks_of(t.offset, t.bytes.value);
}

bool Recomputer::fits(const Lineage::Way& way) const {
  std::uint64_t made = 0;
  for (const std::uint32_t t : way.made) made += chunks_of(t).size();
  return fits_beside(way, made);
}

bool Recomputer::fits_beside(const Lineage::Way& way, std::uint64_t made) const {
  const auto is_made = [&](std::uint32_t t) {
    return std::find(way.made.begin(), way.made.end(), t) != way.made.end();
  };
  std::uint64_t largest = 0;
  for (const std::uint32_t op : way.ops) {
    std::uint64_t beside = 0;
    for (const std::uint32_t t : way.sources) beside += lineage_.touches(op, t) ? chunks_of(t).size() : 0;
    for (const std::uint32_t t : lineage_.results(op)) beside += is_made(t) ? 0 : chunks_of(t).size();
    largest = std::max(largest, beside);
  }
  return made + largest <= session_.frames / 2;
}

bool Recomputer::try_again(std::uint32_t op, bool trust) {
  const std::lock_guard making(making_);
  std::vector<Result> results;
  std::optional<Lineage::Way> way;
  std::uint64_t signature = 0;
  {
    const std::lock_guard lock(session_.mutex);
    const Recipe* const recipe = lineage_.recipe(op);
    if (recipe == nullptr) return false;
    std::vector<std::uint32_t> wanted;
    for (const std::uint32_t t : lineage_.results(op)) {
      const LoggedTensor& logged = session_.logger.log().tensors[t];
      if (session_.logger.logged(logged.offset) != t || logged.small) continue;
      wanted.push_back(t);
      results.push_back({.tensor = t, .at = session_.arena.base() + logged.offset});
    }
    if (!wanted.empty()) way = lineage_.way(wanted);
    if (way && !fits(*way)) way.reset();
    signature = recipe->signature();
  }
  const auto known = trust ? tried_.find(signature) : tried_.end();
  const bool right = way && (known != tried_.end() ? known->second : gives(*way, results));
  if (way && known == tried_.end() && tried_.size() >= most_tried) tried_.clear();
  if (way) tried_[signature] = right;
  if (right) return true;
  const std::lock_guard lock(session_.mutex);
  lineage_.drop_recipe(op);
  return false;
}

}  // namespace vedette::detail
