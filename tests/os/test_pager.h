// The smallest engine over a ChunkMemory: more chunks than frames, a slow tier that is a vector, one lock. Every frame
// that leaves a chunk is poisoned once its bytes are saved, so whoever still saw it would read bytes that nobody wrote.
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/mapping.h"
#include "os/chunk_memory.h"

namespace vedette::testing {

using Open = Result<std::unique_ptr<ChunkMemory>> (*)(ChunkMemoryOptions);

class Pager {
 public:
  static constexpr int poison = 0xDB;

  // The last chunk is spare: nobody lives there, excursions go to it.
  Pager(Open open, std::uint32_t chunks, std::uint32_t frames, std::size_t chunk_bytes, std::uint64_t seed)
      : chunk_bytes_(chunk_bytes),
        chunks_(chunks),
        random_(seed),
        store_(std::size_t{chunks} * chunk_bytes),
        frame_of_(chunks) {
    auto arena = Mapping::reserve({(chunks + 1) * chunk_bytes}, {std::size_t{2} << 20});
    VEDETTE_ASSERT(arena);
    arena_ = std::move(*arena);
    for (std::uint32_t i = 0; i < frames; ++i) free_.push_back({i});
    const std::scoped_lock lock(mutex_);  // a fault is served when memory_ is set
    auto opened = open({.arena = arena_.data(),
                        .chunks = chunks + 1,
                        .frames = frames,
                        .chunk_bytes = {chunk_bytes},
                        .on_fault = [this](const Fault& fault) { served(fault); }});
    if (!opened) {
      error_ = opened.error().message;
    } else {
      memory_ = std::move(*opened);
    }
  }

  std::atomic<bool> restores{false};  // pages that a test discards; chunks move through this pager alone then

  const std::string& error() const { return error_; }
  ChunkMemory& memory() { return *memory_; }
  std::byte* data() const { return arena_.data(); }
  std::byte* chunk(std::uint32_t c) const { return arena_.data() + c * chunk_bytes_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  std::uint32_t chunks() const { return chunks_; }
  std::uint64_t faults() {
    const std::scoped_lock lock(mutex_);
    return faults_.size();
  }
  std::vector<Fault> faults_told() {
    const std::scoped_lock lock(mutex_);
    return faults_;
  }

  void evict(std::uint32_t c) {
    const std::scoped_lock lock(mutex_);
    evict_locked(c);
  }
  void fetch(std::uint32_t c) {
    const std::scoped_lock lock(mutex_);
    fetch_locked(c);
  }
  std::optional<FrameIndex> frame_of(std::uint32_t c) {
    const std::scoped_lock lock(mutex_);
    return frame_of_[c];
  }

  // Chunk c goes to the spare chunk and comes back; false when its bytes were not the same there (or somebody wrote
  // them).
  bool excursion(std::uint32_t c) {
    const std::scoped_lock lock(mutex_);
    if (!frame_of_[c]) return true;
    until([&] { return memory_->shift({c}, {chunks_}, *frame_of_[c]); });
    // Nobody else knows the spare address: what is there now must still be there when the chunk goes back.
    const std::vector<std::byte> there(chunk(chunks_), chunk(chunks_) + chunk_bytes_);
    until([&] { return memory_->shift({chunks_}, {c}, *frame_of_[c]); });
    until([&] { return memory_->hide({c}, *frame_of_[c]); });
    const bool same = std::memcmp(there.data(), memory_->parked(*frame_of_[c]), chunk_bytes_) == 0;
    memory_->show(*frame_of_[c], {c});
    return same;
  }

  // Changes the kind of one frame, wherever it is.
  Result<void> convert_empty(FrameIndex frame, FrameKind kind) {
    const std::scoped_lock lock(mutex_);
    return memory_->trackable()->convert(frame, std::nullopt, kind, false);
  }
  void expect_writes(std::uint32_t c, std::size_t pages) {
    memory_->trackable()->expect_writes(chunk(c), pages * 4096);
  }
  Result<void> convert(FrameIndex frame, FrameKind kind) {
    const std::scoped_lock lock(mutex_);
    std::optional<ChunkIndex> at;
    for (std::uint32_t c = 0; c < chunks_; ++c) {
      if (frame_of_[c] == frame) at = ChunkIndex{c};
    }
    return memory_->trackable()->convert(frame, at, kind, true);
  }

 private:
  template <class Done>
  static void until(Done done) {  // pages that a transfer has pinned are free
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void served(const Fault& fault) {
    const std::scoped_lock lock(mutex_);
    faults_.push_back(fault);
    VEDETTE_ASSERT(fault.chunk.value < chunks_);
    if (const auto frame = frame_of_[fault.chunk.value]) {
      restores ? memory_->faults()->restore(fault, frame) : memory_->faults()->wake(fault.chunk);
    } else {
      fetch_locked(fault.chunk.value);
    }
  }
  void evict_locked(std::uint32_t c) {
    if (!frame_of_[c]) return;
    const FrameIndex frame = *frame_of_[c];
    until([&] { return memory_->hide({c}, frame); });
    std::memcpy(store_.data() + c * chunk_bytes_, memory_->parked(frame), chunk_bytes_);
    std::memset(memory_->parked(frame), poison, chunk_bytes_);
    frame_of_[c].reset();
    free_.push_back(frame);
  }
  void fetch_locked(std::uint32_t c) {
    if (frame_of_[c]) return;
    while (free_.empty()) evict_locked(static_cast<std::uint32_t>(random_() % chunks_));
    const std::size_t pick = random_() % free_.size();
    const FrameIndex frame = free_[pick];
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(pick));
    std::memcpy(memory_->parked(frame), store_.data() + c * chunk_bytes_, chunk_bytes_);
    memory_->show(frame, {c});
    frame_of_[c] = frame;
  }

  std::size_t chunk_bytes_;
  std::uint32_t chunks_;
  std::mt19937_64 random_;
  Mapping arena_;
  std::vector<std::byte> store_;
  std::mutex mutex_;  // everything below
  std::vector<std::optional<FrameIndex>> frame_of_;
  std::vector<FrameIndex> free_;
  std::vector<Fault> faults_;
  std::string error_;
  std::unique_ptr<ChunkMemory> memory_;  // last: its thread stops first
};

}  // namespace vedette::testing
