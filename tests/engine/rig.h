// What the engine's tests share: a store that waits or fails when a test says so, and an engine over real memory.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/mapping.h"
#include "engine/engine.h"

namespace vedette::testing {

using namespace std::chrono_literals;
using Direction = StoreRequest::Direction;

constexpr Bytes chunk_bytes = 64_KiB;
constexpr std::size_t words_per_chunk = 64 * 1024 / 8;

constexpr ChunkRange at(std::uint32_t first, std::uint32_t count = 1) { return ChunkRange::of({first}, count); }

// A store in memory whose writes and reads wait while their gate is closed, and fail while a count says so.
class ScriptedStore final : public StoreWrapper {
 public:
  explicit ScriptedStore(std::unique_ptr<Store> inner) : StoreWrapper(std::move(inner)) {}

  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override {
    const std::lock_guard lock(mutex_);
    for (const StoreRequest& request : requests) take(request);
  }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      std::vector<StoreRequest> held;
      held.swap(held_);
      for (const StoreRequest& request : held) take(request);
      if (!failed_.empty()) {
        const std::size_t count = std::min(out.size(), failed_.size());
        for (std::size_t i = 0; i < count; ++i) out[i] = failed_[i];
        failed_.erase(failed_.begin(), failed_.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
      }
    }
    return inner_->wait(out, timeout);
  }
  std::string_view mechanism() const noexcept override { return "scripted"; }

  void close_gate(Direction direction) {
    const std::lock_guard lock(mutex_);
    gate(direction) = true;
  }
  void open_gate(Direction direction) {
    {
      const std::lock_guard lock(mutex_);
      gate(direction) = false;
    }
    wake();
  }
  void fail(Direction direction, int times, int error = EIO) {
    const std::lock_guard lock(mutex_);
    (direction == Direction::read ? failing_reads_ : failing_writes_) = times;
    error_ = error;
  }
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }
  std::size_t reads_kept() {  // whose bytes are thought to leave unchanged, and are hashed
    const std::lock_guard lock(mutex_);
    return reads_kept_;
  }

 private:
  bool& gate(Direction direction) { return direction == Direction::read ? reads_wait_ : writes_wait_; }
  void take(const StoreRequest& request) {
    if (request.direction == Direction::read && request.remember) ++reads_kept_;
    if (gate(request.direction)) {
      held_.push_back(request);
      return;
    }
    int& failing = request.direction == Direction::read ? failing_reads_ : failing_writes_;
    if (failing > 0) {
      --failing;
      failed_.push_back({.token = request.token, .error = error_});
      return;
    }
    inner_->submit({&request, 1});
  }
  std::mutex mutex_;
  std::vector<StoreRequest> held_;
  std::vector<StoreCompletion> failed_;
  bool reads_wait_ = false, writes_wait_ = false;
  std::size_t reads_kept_ = 0;
  int failing_reads_ = 0, failing_writes_ = 0, error_ = EIO;
};

inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

using Open = Result<std::unique_ptr<ChunkMemory>> (*)(ChunkMemoryOptions);

// An engine of `frames` frames under more chunks, and what the program sees of them. Two frames have memory from the
// start, the others get it as they are needed.
class Rig {
 public:
  struct Memory {
    Open open = open_best_memory;
    std::uint32_t most_frames = 0;           // after Engine::resize(); 0: as many as at first
    std::unique_ptr<Store> store = nullptr;  // nullptr: plain memory
  };
  explicit Rig(std::uint32_t frames = 4, std::uint32_t chunks = 16, bool reads_one_by_one = false)
      : Rig(frames, chunks, reads_one_by_one, Memory{}) {}
  Rig(std::uint32_t frames, std::uint32_t chunks, bool reads_one_by_one, Memory memory) {
    const std::uint32_t most_frames = std::max(frames, memory.most_frames);
    arena_ = Mapping::reserve({chunks * chunk_bytes.value}, chunk_bytes).value();
    if (memory.store == nullptr) memory.store = open_host_store(chunk_bytes, 16).value();
    auto store = std::make_unique<ScriptedStore>(std::move(memory.store));
    store_ = store.get();
    engine_ = std::make_unique<Engine>(
        EngineOptions{.chunks = chunks,
                      .frames = frames,
                      .most_frames = most_frames,
                      .chunk_bytes = chunk_bytes,
                      .store = hashed(std::move(store), Hashing::remembered),
                      .observer = nullptr,
                      .habits = LinkHabits{.speed = {}, .reads_in_flight = reads_one_by_one ? 2u : 6u},
                      .on_message = [this](std::string_view m) { messages.emplace_back(m); },
                      .on_dropped_wanted =
                          [this](ChunkIndex c) {
                            if (on_dropped_wanted) on_dropped_wanted(c);
                          }});
    Engine* const engine = engine_.get();
    engine_->start(memory
                       .open({.arena = arena_.data(),
                              .chunks = chunks,
                              .frames = most_frames,
                              .made = std::min(frames, 2u),
                              .budget = frames,
                              .chunk_bytes = chunk_bytes,
                              .on_fault = [engine](const Fault& fault) { engine->fault(fault); }})
                       .value());
  }
  ~Rig() {
    engine_.reset();  // before the arena, whose chunks it guards
  }

  Engine& engine() { return *engine_; }
  std::string mechanism() const { return engine_->mechanism(); }
  ScriptedStore& store() { return *store_; }
  std::uint64_t* words(std::uint32_t c) {
    return reinterpret_cast<std::uint64_t*>(arena_.data() + c * chunk_bytes.value);
  }
  void fill(std::uint32_t c, std::uint64_t mark) {
    for (std::size_t w = 0; w < words_per_chunk; ++w) words(c)[w] = mark * 1'000'003 + w;
  }
  bool holds(std::uint32_t c, std::uint64_t mark) {
    for (std::size_t w = 0; w < words_per_chunk; ++w)
      if (words(c)[w] != mark * 1'000'003 + w) return false;
    return true;
  }
  void born(std::uint32_t c, std::uint64_t mark) {
    engine_->born(at(c)).value();
    fill(c, mark);
  }
  struct Around {
    std::vector<detail::OpMoves::Fetch> fetches;
    std::vector<ChunkRange> evictions;
    std::vector<detail::OpMoves::NextUse> next_uses;
    std::vector<detail::OpMoves::InPlace> in_place = {};
  };
  void op(
      std::vector<ChunkRange> operands, const Around& around, const std::function<void()>& body = [] {}) {
    begin(operands, around);
    body();
    std::vector<detail::OpMoves::Departure> evictions;
    for (const ChunkRange range : around.evictions) evictions.push_back({.chunks = range});
    engine_->end_op(evictions);
  }
  void begin(std::vector<ChunkRange> operands, const Around& around) {
    engine_->begin_op({0}, "op",
                      {.tick = ++tick_,
                       .operands = operands,
                       .moves = {.fetches = around.fetches, .next_uses = around.next_uses, .in_place = around.in_place},
                       .planned = true});
  }
  bool here(std::uint32_t c) {
    return engine_->state({c}) == ChunkState::resident || engine_->state({c}) == ChunkState::arrived;
  }
  void evict(std::vector<ChunkRange> ranges) {  // and waits until all are away
    op({}, {.fetches = {}, .evictions = ranges, .next_uses = {}});
    for (const ChunkRange range : ranges)
      for (const ChunkIndex c : range) ASSERT_TRUE(eventually([&] { return engine_->state(c) == ChunkState::away; }));
  }
  void fill_without_chunk_0() {  // of two frames: chunk 0 is away, and 1 and 2 leave it no room
    born(0, 0);
    evict({at(0)});
    born(1, 1);
    born(2, 2);
  }
  void stays_away(std::uint32_t c) {
    ASSERT_TRUE(eventually([&] { return engine_->state({c}) == ChunkState::away; }));
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(engine_->state({c}), ChunkState::away);
  }

  std::vector<std::string> messages;
  std::function<void(ChunkIndex)> on_dropped_wanted;

 private:
  Mapping arena_;
  ScriptedStore* store_ = nullptr;
  std::unique_ptr<Engine> engine_;
  Ticks tick_ = 0;
};

}  // namespace vedette::testing
