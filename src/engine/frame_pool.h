// Frames that no chunk has: those that are ready, those that have no memory, and those whose memory comes or goes.
// Together with the frames of chunks they are the budget. Pure; the owner's lock guards it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "os/chunk_index.h"

namespace vedette {

class FramePool {
 public:
  struct Run {  // of consecutive frames
    FrameIndex first;
    std::uint32_t count = 0;
  };

  explicit FramePool(std::uint32_t frames) : has_memory_(frames, true), frames_(frames), wanted_(frames) {
    for (std::uint32_t f = frames; f-- > 0;) ready_.push_back({f});
  }
  // Before anything else: only frames [0, made) have memory.
  void begin_with(std::uint32_t made) {
    VEDETTE_ASSERT(ready_.size() == has_memory_.size() && made <= frames_);
    ready_.clear();
    for (std::uint32_t f = made; f-- > 0;) ready_.push_back({f});
    for (std::uint32_t f = frames_; f-- > made;) {
      has_memory_[f] = false;
      unmade_.push_back({f});
    }
  }

  std::uint32_t frames() const noexcept { return frames_; }  // at most, those of chunks included
  std::uint32_t wanted() const noexcept { return wanted_; }  // of frames(): the budget as it was set last
  std::uint32_t ever() const noexcept {
    return static_cast<std::uint32_t>(has_memory_.size());
  }  // one past the highest
  std::uint32_t ready() const noexcept { return static_cast<std::uint32_t>(ready_.size()); }
  std::uint32_t unmade() const noexcept { return static_cast<std::uint32_t>(unmade_.size()); }
  std::uint32_t making() const noexcept { return making_; }  // or given back just now
  std::uint32_t size() const noexcept { return ready() + unmade() + making_; }
  bool has_memory(FrameIndex frame) const noexcept { return has_memory_[frame.value]; }

  // --- ready frames
  std::optional<FrameIndex> take() {
    if (ready_.empty()) return std::nullopt;
    const FrameIndex frame = ready_.back();
    ready_.pop_back();
    return frame;
  }
  void give(FrameIndex frame) { ready_.push_back(frame); }

  // --- memory comes and goes
  Run start_making(std::uint32_t most) {  // the caller makes it and says made() or not_made(). Count 0: none is left
    Run run;
    while (!unmade_.empty() && run.count < most) {
      const FrameIndex next = unmade_.back();
      if (run.count == 0) run.first = next;
      if (next.value != run.first.value + run.count) break;
      unmade_.pop_back();
      ++run.count;
    }
    making_ += run.count;
    return run;
  }
  void made(Run run) {
    making_ -= run.count;
    for (std::uint32_t k = run.count; k-- > 0;) {
      const FrameIndex frame{run.first.value + k};
      has_memory_[frame.value] = true;
      ready_.push_back(frame);
    }
  }
  void not_made(Run run) {  // there is no more memory: no other frame is made, either
    making_ -= run.count;
    for (std::uint32_t k = run.count; k-- > 0;) unmade_.push_back({run.first.value + k});
    while (retire()) {
    }
  }
  // The memory of so many ready frames goes: the caller gives it back and says gone().
  std::vector<FrameIndex> start_unmaking(std::uint32_t most) {
    std::vector<FrameIndex> going;
    while (going.size() < most && !ready_.empty()) {
      going.push_back(*take());
      has_memory_[going.back().value] = false;
    }
    making_ += static_cast<std::uint32_t>(going.size());
    return going;
  }
  void gone(const std::vector<FrameIndex>& frames) {
    making_ -= static_cast<std::uint32_t>(frames.size());
    unmade_.insert(unmade_.end(), frames.begin(), frames.end());
    sort_unmade();
  }
  std::optional<FrameIndex> unmake() {  // the caller gives the memory of this one back
    const auto frame = take();
    if (!frame) return std::nullopt;
    has_memory_[frame->value] = false;
    unmade_.push_back(*frame);
    return frame;
  }
  bool retire() {  // one frame less from now on. False: all that is left has memory
    if (unmade_.empty()) return false;
    retired_.push_back(unmade_.back());
    unmade_.pop_back();
    --frames_;
    return true;
  }

  // --- the budget changes
  // So many frames from now on. Fewer than there are: the owner calls retire() until then.
  void want(std::uint32_t frames) {
    wanted_ = frames;
    for (; frames_ < wanted_; ++frames_) {
      if (retired_.empty()) {
        retired_.push_back({ever()});
        has_memory_.push_back(false);
      }
      unmade_.push_back(retired_.back());
      retired_.pop_back();
    }
    sort_unmade();
  }

 private:
  // made again in runs
  void sort_unmade() {
    std::sort(unmade_.begin(), unmade_.end(), [](FrameIndex a, FrameIndex b) { return a.value > b.value; });
  }

  std::vector<FrameIndex> ready_, unmade_;  // the last goes first
  std::vector<FrameIndex> retired_;         // without memory, and no part of the budget
  std::vector<bool> has_memory_;
  std::uint32_t frames_ = 0, wanted_ = 0, making_ = 0;
};

}  // namespace vedette
