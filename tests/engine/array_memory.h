// Memory for an engine by hand: an array, of which a frame is 4 KiB, whatever a chunk is.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "base/assert.h"
#include "base/indexed.h"
#include "os/chunk_memory.h"

namespace vedette::testing {

// Frames are words. A move that the contract of ChunkMemory forbids ends the test.
class ArrayMemory final : public ChunkMemory, private Faults {
 public:
  static constexpr std::uint32_t made_at_first = 2;

  ArrayMemory(std::uint32_t chunks, std::uint32_t frames, std::mt19937_64& random)
      : words_(frames * words_per_frame), at_(chunks), made_(frames, false), shown_(frames, false), random_(random) {
    for (FrameIndex f; f.value < made_at_first; ++f.value) made_[f] = true;
  }

  std::uint32_t made() const noexcept override { return made_at_first; }
  int make(FrameIndex first, std::uint32_t count, FrameKind) noexcept override {
    if (frames_made() + count > at_most_) return ENOMEM;
    for (FrameIndex f = first; f.value < first.value + count; ++f.value) {
      VEDETTE_ASSERT(!made_[f]);
      made_[f] = true;
      ++times_made_;
    }
    most_made_ = std::max(most_made_, frames_made());
    return 0;
  }
  void give_back(FrameIndex frame) noexcept override {
    VEDETTE_ASSERT(made_[frame] && !shown_[frame]);
    made_[frame] = false;
  }
  void show(FrameIndex frame, ChunkIndex chunk) noexcept override {
    VEDETTE_ASSERT(made_[frame] && !shown_[frame] && !at_[chunk]);
    shown_[frame] = true;
    at_[chunk] = frame;
  }
  bool hide(ChunkIndex chunk, FrameIndex frame) noexcept override {
    VEDETTE_ASSERT(at_[chunk] == frame && shown_[frame]);
    if (refuses()) return false;
    shown_[frame] = false;
    at_[chunk].reset();
    return true;
  }
  bool shift(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept override {
    VEDETTE_ASSERT(at_[from] == frame && !at_[to]);
    if (refuses()) return false;
    at_[from].reset();
    at_[to] = frame;
    return true;
  }
  std::byte* parked(FrameIndex frame) const noexcept override {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&words_[frame.value * words_per_frame]));
  }
  Reach reach() const noexcept override { return {}; }
  Faults* faults() noexcept override { return this; }
  Trackable* trackable() noexcept override { return nullptr; }
  std::string_view mechanism() const noexcept override { return "array"; }

  std::optional<FrameIndex> shown_at(ChunkIndex chunk) const { return at_[chunk]; }
  std::uint64_t* word(ChunkIndex chunk) { return at_[chunk] ? &words_[at_[chunk]->value * words_per_frame] : nullptr; }
  std::uint32_t frames_made() const {
    return static_cast<std::uint32_t>(std::count(made_.begin(), made_.end(), char{true}));
  }
  std::uint32_t most_made() const { return most_made_; }    // at once
  std::uint64_t times_made() const { return times_made_; }  // frames, those that were given back meanwhile included
  void allow_at_most(std::uint32_t frames) { at_most_ = frames; }  // to be made
  void refuse_every(std::uint64_t nth) { refuse_every_ = nth; }    // hide and shift; 0: never

 private:
  static constexpr std::size_t words_per_frame = 512;
  bool refuses() { return refuse_every_ != 0 && random_() % refuse_every_ == 0; }
  void wake(ChunkIndex) noexcept override {}

  std::vector<std::uint64_t> words_;
  Indexed<ChunkIndex, std::optional<FrameIndex>> at_;
  Indexed<FrameIndex, char> made_, shown_;
  std::mt19937_64& random_;
  std::uint64_t refuse_every_ = 0;
  std::uint32_t at_most_ = ~0u, most_made_ = made_at_first;
  std::uint64_t times_made_ = 0;
};

}  // namespace vedette::testing
