// Once, before the first move, the migrator measures the slow tiers.
#include <algorithm>
#include <array>

#include "engine/slow_tier.h"

namespace vedette::engine {

namespace {

// Transfers between frames and slots that are not in use yet.
class Trial {
 public:
  using DirectionOf = StoreRequest::Direction (*)(std::uint32_t);  // of the n-th request

  Trial(Store& store, const ChunkMemory& memory, Program& program, TierIndex tier, std::uint32_t width)
      : store_(store), memory_(memory), program_(program), tier_(tier), width_(width) {}

  std::uint32_t width() const noexcept { return width_; }
  Bytes slot_bytes() const noexcept { return store_.slot_bytes(); }
  Nanoseconds time(std::uint32_t requests, std::uint32_t at_once, DirectionOf direction_of) {
    const Nanoseconds began = program_.now();
    std::uint32_t submitted = 0, completed = 0;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t f = 0; f < at_once; ++f) ready.push_back(f);
    std::array<StoreCompletion, 64> done;
    while (completed < requests) {
      std::vector<StoreRequest> batch;
      while (!ready.empty() && submitted < requests) {
        const std::uint32_t f = ready.back();
        ready.pop_back();
        batch.push_back({.direction = direction_of(submitted++),
                         .slot = {f},
                         .memory = memory_.parked({f}),
                         .token = f,
                         .tier = tier_});
      }
      store_.submit(batch);
      const std::size_t count = store_.wait(done, {1'000'000'000});
      for (std::size_t i = 0; i < count; ++i) ready.push_back(static_cast<std::uint32_t>(done[i].token));
      completed += static_cast<std::uint32_t>(count);
    }
    return {std::max<std::int64_t>(1, (program_.now() - began).value)};
  }
  std::uint64_t speed(std::uint32_t requests, std::uint32_t at_once, DirectionOf direction_of) {
    const double seconds = static_cast<double>(time(requests, at_once, direction_of).value) * 1e-9;
    return static_cast<std::uint64_t>(static_cast<double>(requests * store_.slot_bytes().value) / seconds);
  }

 private:
  Store& store_;
  const ChunkMemory& memory_;
  Program& program_;
  const TierIndex tier_;
  const std::uint32_t width_;
};

using enum StoreRequest::Direction;
StoreRequest::Direction writes(std::uint32_t) { return write; }
StoreRequest::Direction reads(std::uint32_t) { return read; }
StoreRequest::Direction both(std::uint32_t i) { return i % 2 == 0 ? read : write; }

// Each slot six times: some 0.25 s on a disk of 3 GB/s.
LinkHabits habits_of(Trial trial) {
  const std::uint32_t width = trial.width();
  LinkHabits habits;
  trial.speed(6 * width, width, writes);  // the first write of a slot is slower: the file system fills its map
  habits.speed.write = trial.speed(6 * width, width, writes);
  habits.speed.read = trial.speed(6 * width, width, reads);
  habits.speed.mixed = trial.speed(6 * width, width, both);
  for (const std::uint32_t few : {2u, 4u}) {
    if (few > width || habits.reads_in_flight < few) continue;
    if (trial.speed(2 * width, few, reads) > habits.speed.read / 10 * 9) habits.reads_in_flight = few;
  }
  constexpr std::uint32_t alone = 8;
  const std::int64_t of_one = trial.time(alone, 1, reads).value / alone;
  const std::int64_t among_many = transfer_time(trial.slot_bytes(), habits.speed.read).value;
  habits.latency = {std::max<std::int64_t>(0, of_one - among_many)};
  return habits;
}

}  // namespace

// Of each slow tier: plans count on it, and the pace of moves rests on it.
void SlowTier::measure() noexcept {
  habits_.assign(tiers(), given_.value_or(LinkHabits{}));
  const std::uint32_t width = std::min({depth(), books_.pool().ready(), 16u});
  if (by_hand_ || given_ || !store_->reserve(width)) return;  // disk full: the first allocation will say so
  std::vector<SlotIndex> used;
  for (std::uint32_t slot = 0; slot < width; ++slot) used.push_back({slot});
  for (std::uint32_t tier = tiers(); tier > 0; --tier) {
    const std::uint32_t room = store_->slots_of({tier});
    const std::uint32_t safe = tiers() == 1 || tier > 1 ? room : room - spare_near_slots(room);
    habits_[tier - 1] = habits_of({*store_, *memory_, program_, {tier}, std::min(width, safe)});
    store_->discard(used);
  }
}

}  // namespace vedette::engine
