// Chunks that cannot leave for now, since a transfer of the program has their pages pinned. They are tried again after
// a pause that grows. Times are the program's; the owner's lock guards this.
#pragma once
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "os/chunk_index.h"
#include "vedette/units.h"

namespace vedette {

class BusyChunks {
 public:
  bool empty() const noexcept { return chunks_.empty(); }
  Nanoseconds pause() const noexcept { return pause_; }
  void add(ChunkIndex chunk, Nanoseconds now) {
    if (chunks_.empty()) retry_at_ = now + pause_;
    chunks_.push_back(chunk);
  }
  // Those whose pause is over, which are no longer busy; the next pause is twice as long.
  std::vector<ChunkIndex> due(Nanoseconds now) {
    if (chunks_.empty()) {
      pause_ = first_pause;
      return {};
    }
    if (now < retry_at_) return {};
    pause_ = std::min(Nanoseconds{pause_.value * 2}, longest_pause);
    return std::exchange(chunks_, {});
  }
  // Room is waited for that only busy chunks could make. Returns how long that has been so.
  Nanoseconds room_awaited(Nanoseconds now) {
    if (!since_) since_ = now;
    return now - *since_;
  }
  void room_found() noexcept { since_.reset(); }

 private:
  static constexpr Nanoseconds first_pause{1'000'000}, longest_pause{16'000'000};
  std::vector<ChunkIndex> chunks_;
  Nanoseconds pause_ = first_pause, retry_at_;
  std::optional<Nanoseconds> since_;
};

}  // namespace vedette
