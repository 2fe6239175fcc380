// Writes to the slow tier that failed, and how often they are tried again. The owner's lock guards this.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include "vedette/result.h"

namespace vedette {

class FailedWrites {
 public:
  // Of the last write, if it failed.
  const std::optional<Error>& last() const noexcept { return last_; }
  void failed(Error error) {
    if (!untold_) untold_ = error;
    last_ = std::move(error);
    chunks_ = true;
  }
  void worked() noexcept {
    last_.reset();
    rounds_ = 0;
  }
  std::optional<Error> take_untold() noexcept { return std::exchange(untold_, std::nullopt); }
  // True: some chunk is not tried again until its mark is taken away, which the caller does now.
  bool forgive() noexcept { return std::exchange(chunks_, false); }
  // Some chunk's write failed, and later one of another chunk worked.
  bool worth_trying_again() const noexcept { return chunks_ && !last_; }
  std::uint32_t next_round() noexcept { return ++rounds_; }  // in a row, without a write that worked

 private:
  std::optional<Error> last_, untold_;
  bool chunks_ = false;
  std::uint32_t rounds_ = 0;
};

}  // namespace vedette
