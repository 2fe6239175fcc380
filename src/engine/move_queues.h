// Chunks that are to move, in the order in which they do. Urgent ones go first: a thread waits for them. Fetches are a
// plan's or a prediction's; restores are fetched since another plan's step ran before. Pure; the owner's lock guards
// it.
//
// What always holds: the queues name chunks and promise nothing. A chunk may have come, left or died when its turn is.
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "moves/next_uses.h"
#include "os/chunk_index.h"
#include "vedette/units.h"

namespace vedette {

class MoveQueues {
 public:
  struct Coming {
    ChunkIndex chunk;
    Ticks use = never;  // for which it comes; never: the plan names none
  };
  struct Leaving {
    ChunkIndex chunk;
    TierIndex target;
  };
  using Uses = moves::NextUses<ChunkIndex>;

  bool empty() const noexcept { return urgent_.empty() && !has_fetches() && evictions_.empty(); }
  void forget_plan() {
    fetches_.clear();
    restores_.clear();
    evictions_.clear();
  }

  // --- urgent ------------------------------------------------------------------------------------------------------
  void request(ChunkIndex chunk) { urgent_.push_back(chunk); }
  std::size_t urgent() const noexcept { return urgent_.size(); }
  ChunkIndex most_urgent() const { return urgent_.front(); }
  void pop_urgent() { urgent_.pop_front(); }

  // --- fetches -----------------------------------------------------------------------------------------------------
  void fetch(Coming coming) { fetches_.push_back(coming); }
  void fetch_first(const std::vector<Coming>& coming) {
    fetches_.insert(fetches_.begin(), coming.begin(), coming.end());
  }
  void forget_fetches() { fetches_.clear(); }
  std::deque<Coming>& fetches() noexcept { return fetches_; }  // in order of need
  // A plan has these as its step begins, in order of need: beside its own fetches.
  void restore(const std::vector<Coming>& coming) { restores_.assign(coming.begin(), coming.end()); }
  bool has_fetches() const noexcept { return !fetches_.empty() || !restores_.empty(); }
  // Fetches of chunks that are used before `due`. All of them are, where it is `never`.
  std::size_t fetches_before(Ticks due, const Uses& uses) const {
    if (due == never) return fetches_.size();
    const auto later = [&](const Coming& coming) { return uses.of(coming.chunk) >= due; };
    return static_cast<std::size_t>(std::find_if(fetches_.begin(), fetches_.end(), later) - fetches_.begin());
  }
  bool any_before(Ticks due, const Uses& uses) const noexcept {
    if (!restores_.empty()) return true;
    return !fetches_.empty() && (due == never || uses.of(fetches_.front().chunk) < due);
  }
  // Of both kinds the chunk that is used first; a plan's own fetches go before those for which it names no use.
  Coming take_fetch(const Uses& uses) {
    const bool restores = !restores_.empty() &&
                          (fetches_.empty() || uses.told(restores_.front().chunk) < uses.told(fetches_.front().chunk));
    std::deque<Coming>& queue = restores ? restores_ : fetches_;
    const Coming next = queue.front();
    queue.pop_front();
    return next;
  }

  // --- evictions ---------------------------------------------------------------------------------------------------
  void evict(Leaving leaving) { evictions_.push_back(leaving); }
  std::size_t evictions() const noexcept { return evictions_.size(); }
  Leaving take_eviction() {
    const Leaving next = evictions_.front();
    evictions_.pop_front();
    return next;
  }

 private:
  std::deque<ChunkIndex> urgent_;
  std::deque<Coming> fetches_, restores_;
  std::deque<Leaving> evictions_;
};

}  // namespace vedette
