// A session's books, foresight and plans over an engine by hand, whose memory is an array and whose link is a clock:
// the same program moves the same bytes in every run. A chunk's bytes are eight words, which say what was written there
// last; each access compares them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "engine/array_memory.h"
#include "engine/engine.h"
#include "session/core.h"
#include "session/player.h"
#include "session/registry.h"
#include "session/stack.h"
#include "support/manual_program.h"

namespace vedette::testing {

// One transfer after the other, each as long; reads and writes share the link. Where `waits`, wait() moves the clock.
class LinkStore final : public OneTierStore {
 public:
  static constexpr Nanoseconds of_a_chunk{10'000};
  explicit LinkStore(ManualProgram& program) : program_(program) {}

  Result<void> reserve(std::uint32_t slots) override {
    if (slots > slots_.size()) slots_.resize(slots);
    return {};
  }
  void shrink(std::uint32_t slots) noexcept override { slots_.resize(std::min<std::size_t>(slots, slots_.size())); }
  void register_memory(std::byte*, Bytes) override {}
  void submit(std::span<const StoreRequest> requests) noexcept override {
    for (const StoreRequest& request : requests) {
      free_at_ = std::max(free_at_, program_.now()) + of_a_chunk;
      in_flight_.push_back({request, free_at_});
    }
  }
  std::size_t wait(std::span<StoreCompletion> out, Nanoseconds) noexcept override {
    if (in_flight_.empty()) return 0;
    if (waits && in_flight_.front().ends > program_.now()) program_.advance(in_flight_.front().ends - program_.now());
    std::size_t count = 0;
    for (; count < out.size() && !in_flight_.empty() && in_flight_.front().ends <= program_.now(); ++count) {
      const StoreRequest& request = in_flight_.front().request;
      auto& slot = slots_[request.slot.value];
      if (request.direction == StoreRequest::Direction::read) {
        std::memcpy(request.memory, slot.data(), slot.size());
      } else {
        std::memcpy(slot.data(), request.memory, slot.size());
      }
      out[count] = {.token = request.token};
      in_flight_.pop_front();
    }
    return count;
  }
  void wake() noexcept override {}
  std::uint32_t depth() const noexcept override { return 16; }
  Bytes slot_bytes() const noexcept override { return {slot_size}; }
  std::string_view mechanism() const noexcept override { return "a clock"; }

  bool waits = true;

 private:
  static constexpr std::size_t slot_size = 64;
  struct InFlight {
    StoreRequest request;
    Nanoseconds ends;
  };
  ManualProgram& program_;
  std::vector<std::array<std::byte, slot_size>> slots_;
  std::deque<InFlight> in_flight_;
  Nanoseconds free_at_;
};

class ReplayPlayer final : public Player {
 public:
  static constexpr Bytes chunk = 64_KiB;

  // `computing`: with a chunk of each operand; the link moves one in LinkStore::of_a_chunk. `chunks`: of addresses.
  ReplayPlayer(Bytes budget, const std::string& policy, Nanoseconds computing = LinkStore::of_a_chunk,
               std::uint32_t chunks = 4096)
      : computing_(computing) {
    const auto frames = static_cast<std::uint32_t>(budget.value / chunk.value);
    auto made = std::make_unique<detail::SessionCore>(SessionOptions{.fast_memory = budget,
                                                                     .slow = "host",
                                                                     .policy = policy,
                                                                     .chunk = chunk,
                                                                     .profile = ProfileTicks::operands,
                                                                     .on_message = [](std::string_view) {}},
                                                      Mapping::reserve({chunks * chunk.value}, chunk).value());
    auto link = std::make_unique<LinkStore>(program_);
    link_ = link.get();
    constexpr std::uint64_t speed = chunk.value * 1'000'000'000 / LinkStore::of_a_chunk.value;
    const std::vector<LinkHabits> habits = {
        {.speed = {.read = speed, .write = speed, .mixed = speed}, .latency = {1'000}}};
    auto engine = std::make_unique<Engine>(EngineOptions{.chunks = chunks,
                                                         .frames = frames,
                                                         .chunk_bytes = chunk,
                                                         .store = hashed(std::move(link), Hashing::remembered),
                                                         .program = &program_,
                                                         .habits = habits[0],
                                                         .by_hand = true,
                                                         .on_message = [](std::string_view) {}});
    auto memory = std::make_unique<ArrayMemory>(chunks, frames, random_);
    memory_ = memory.get();
    engine_ = engine.get();
    engine->start(std::move(memory));
    const std::vector<Tier> slow = {{.name = "host", .capacity = detail::no_limit, .addressable = false}};
    detail::SessionCore::Opened opened;
    opened.executor = std::move(engine);
    opened.machine = detail::machine_of(budget, chunk, slow, habits);
    opened.frames = frames;
    made->start(std::move(opened));
    core_ = detail::register_session(std::move(made)).value();
  }
  ReplayPlayer(const ReplayPlayer&) = delete;
  ReplayPlayer& operator=(const ReplayPlayer&) = delete;
  ~ReplayPlayer() override {
    for (Tensor tensor = 0; tensor < tensors_.size(); ++tensor)
      if (tensors_[tensor].memory != nullptr) drop(tensor);
    detail::close_session(core_);
  }

  Tensor make(std::size_t bytes, bool lasting) override {
    std::byte* const memory = core_->memory().allocate({.bytes = {bytes}, .persistent = lasting}).value();
    tensors_.push_back({memory, core_->arena().chunks_of(core_->arena().offset_of(memory), bytes)});
    for (const ChunkIndex c : tensors_.back().chunks) ++held_[c.value].live;
    return tensors_.size() - 1;
  }
  void drop(Tensor tensor) override {
    core_->release(std::exchange(tensors_[tensor].memory, nullptr));
    for (const ChunkIndex c : tensors_[tensor].chunks)
      if (Held& held = held_[c.value]; --held.live == 0) held.last = 0;
  }
  void is_weight(Tensor tensor) override {
    core_->memory().label(tensors_[tensor].memory, "weight", TensorKind::weight);
  }
  void step(const Body& body) override {
    core_->steps().begin_step();
    body();
    core_->steps().end_step();
  }
  void op(std::string_view name, const Tensors& reads, const Tensors& writes, const Body& body) override {
    const std::vector<const void*> read = addresses(reads), written = addresses(writes);
    core_->steps().begin_op(name, read, written, {}, {});
    body();
    core_->steps().end_op();
    turns();
  }
  void make_of(Tensor out, const Tensors& from) override { change(out, from); }
  void change(Tensor out, const Tensors& from) override {
    for (const Tensor tensor : from) access(tensor, false);
    access(out, true);
  }
  void look(Tensor tensor) override { access(tensor, false); }
  void fill(Tensor tensor, std::uint64_t) override { access(tensor, true); }
  std::uint64_t sum(Tensor tensor) override { return access(tensor, false), 0; }

  Counters counters() const { return core_->counters(); }
  std::string_view phase() const { return core_->steps().phase(); }
  Nanoseconds time() { return program_.now(); }  // since the session was opened
  // Chunks that the running step's plan has near as it begins; none: no plan is followed.
  std::set<std::uint32_t> planned_near() const {
    std::set<std::uint32_t> near;
    if (!core_->plans().follows_plan()) return near;
    for (const auto& unit : core_->plans().current()->plan.start().near)
      for (const ChunkIndex c : unit.chunks) near.insert(c.value);
    return near;
  }
  bool is_near(std::uint32_t c) const { return engine_->state(ChunkIndex{c}) == ChunkState::resident; }

 private:
  struct Made {
    std::byte* memory = nullptr;
    ChunkRange chunks;
  };
  struct Held {
    std::uint32_t live = 0;  // tensors
    std::uint64_t last = 0;  // written there; 0: nothing since no tensor lived there
  };

  std::vector<const void*> addresses(const Tensors& tensors) const {
    std::vector<const void*> all;
    for (const Tensor tensor : tensors) all.push_back(tensors_[tensor].memory);
    return all;
  }
  // The migrator has its turns while the op computes.
  void access(Tensor tensor, bool writes) {
    for (const ChunkIndex c : tensors_[tensor].chunks) {
      std::uint64_t* const word = bring(c, writes);
      if (word == nullptr) return;
      std::uint64_t& last = held_[c.value].last;
      if (*word != last && last != 0 && !std::exchange(told_, true))
        ADD_FAILURE() << "chunk " << c.value << " has other bytes";
      if (writes) *word = last = ++written_;
      for (Nanoseconds left = computing_; left.value > 0; left = left - std::min(left, LinkStore::of_a_chunk)) {
        program_.advance(std::min(left, LinkStore::of_a_chunk));
        turns();
      }
    }
  }
  std::uint64_t* bring(ChunkIndex c, bool writes) {
    for (int turns = 0; turns < 10'000; ++turns) {
      if (std::uint64_t* const word = memory_->word(c)) return word;
      engine_->fault({.chunk = c, .page = 0, .write = writes, .address = nullptr});
      if (memory_->word(c) == nullptr) engine_->run_once();
    }
    ADD_FAILURE() << "chunk " << c.value << " does not come";
    return nullptr;
  }
  void turns() {
    link_->waits = false;
    for (int i = 0; i < 3; ++i) engine_->run_once();
    link_->waits = true;
  }

  const Nanoseconds computing_;
  ManualProgram program_;
  std::mt19937_64 random_{1};
  LinkStore* link_ = nullptr;
  ArrayMemory* memory_ = nullptr;
  Engine* engine_ = nullptr;
  detail::SessionCore* core_ = nullptr;
  std::vector<Made> tensors_;
  std::unordered_map<std::uint32_t, Held> held_;  // by chunk
  std::uint64_t written_ = 0;
  bool told_ = false;  // of a chunk with other bytes: many follow the first
};

}  // namespace vedette::testing
