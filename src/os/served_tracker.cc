#include "os/served_tracker.h"

namespace vedette {

Result<void> ServedTracker::start(bool signals) {
  if (!signals) {
    reader_ = std::make_unique<FaultReader>(
        userfaultfd_, [this](const MissingPage& missing) { return serve(missing.page, missing.write); }, true);
    return {};
  }
  auto claim = BusClaim::make(*this);
  if (!claim) return claim.error();
  claim_.emplace(std::move(*claim));
  return {};
}

void ServedTracker::stop() noexcept {
  reader_.reset();
  claim_.reset();
}

bool ServedTracker::serve(std::byte* at, bool write) noexcept {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(at) / page_size;
  if ((states_.load(page) & named) == 0) return false;
  std::byte* const begin = PageStates::address_of(page);
  const Serving serving(turnstile_);
  const State state = states_.load(page);
  if ((state & armed) != 0) return answer(begin, state, write);
  userfaultfd_.wake(begin, page_size);  // let go of meanwhile: whatever is there now answers
  return true;
}

}  // namespace vedette
