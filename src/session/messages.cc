// A queue of sentences, and their delivery: see messages.h.
#include "session/messages.h"

namespace vedette::detail {

void Messages::post(std::string_view sentence, const Callback* to) {
  if (!*to) return;
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  posted_.emplace_back(sentence, to);
  some_.store(true, std::memory_order_relaxed);
}

void Messages::deliver() {
  while (some_.load(std::memory_order_relaxed)) {
    std::pair<std::string, const Callback*> sentence;
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty()) return some_.store(false, std::memory_order_relaxed);
      sentence = std::move(posted_.front());
      posted_.pop_front();
    }
    (*sentence.second)(sentence.first);
  }
}

void Messages::end() {
  deliver();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  posted_.clear();
}

}  // namespace vedette::detail
