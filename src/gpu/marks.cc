// Events that are used again: see marks.h.
#include "gpu/marks.h"

#include <utility>

namespace vedette::detail {

Marks::Mark Marks::record(cuda::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) {
    auto fresh = cuda::Event::create(device_, cuda::Event::Timing::on);
    if (!fresh) return none;
    unused_.push_back(events_.size());
    events_.push_back(std::move(*fresh));
    held_.push_back(0);
  }
  const Mark mark = unused_.back();
  if (!events_[mark].record(stream)) return none;
  unused_.pop_back();
  held_[mark] = 1;
  return mark;
}

void Marks::hold(Mark mark) {
  const std::lock_guard lock(mutex_);
  if (mark != none) ++held_[mark];
}

void Marks::release(Mark mark) {
  const std::lock_guard lock(mutex_);
  if (mark != none && --held_[mark] == 0) unused_.push_back(mark);
}

}  // namespace vedette::detail
