// Recipes are tried: see recomputer.h.
#include "session/recomputer.h"

#include <mutex>
#include <optional>

namespace vedette::detail {

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
