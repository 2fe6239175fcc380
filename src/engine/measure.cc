// What the migrator does once, before the first move: frames are registered for I/O, and the slow tier is measured.
#include <algorithm>
#include <array>

#include "engine/engine.h"
#include "engine/pace.h"
#include "os/parking.h"

namespace vedette {

// Where frames keep their pages pinned across moves, the kernel need not look them up for every transfer. It looks them
// up now, so all frames are made first: only where it will take them.
void Engine::register_frames(std::unique_lock<std::mutex>& lock) {
  if (!slow_.register_frames || !memory_->reach().keeps_buffers || books_.frames() == 0) return;
  std::byte* const first = memory_->parked({0});
  for (FrameIndex f{1}; f.value < books_.frames(); ++f.value)
    if (memory_->parked(f) != first + f.value * chunk_bytes_.value)
      return;  // not one range: transfers go on unregistered
  const Bytes all = {books_.frames() * chunk_bytes_.value};
  const bool by_ring = slow_.store->mechanism().find("io_uring") != std::string_view::npos;
  if (!by_ring || !may_lock(first, all.value)) return;
  while (make_frames(lock)) {
  }
  if (books_.frames() * chunk_bytes_.value != all.value) return;
  slow_.store->register_memory(first, all);
  slow_.registered = true;
}

// Writes, reads and alternates both over slots nobody uses yet, each slot six times: what a plan may count on. Then
// reads two at a time: what the pace of reads rests on. Some 0.25 s on a disk of 3 GB/s.
LinkSpeed Engine::measure() noexcept {
  const std::uint32_t width = std::min({slow_.store->depth(), books_.pool().ready(), 16u});
  LinkSpeed speed;
  std::array<StoreCompletion, 64> done;
  if (!slow_.store->reserve(width)) return speed;  // disk full: the first allocation will say so
  const auto pass = [&](std::uint32_t requests, std::uint32_t at_once, auto direction_of) {
    const Nanoseconds began = program_.now();
    std::uint32_t submitted = 0, completed = 0;
    std::vector<std::uint32_t> ready;
    for (std::uint32_t f = 0; f < at_once; ++f) ready.push_back(f);
    while (completed < requests) {
      std::vector<StoreRequest> batch;
      while (!ready.empty() && submitted < requests) {
        const std::uint32_t f = ready.back();
        ready.pop_back();
        batch.push_back(
            {.direction = direction_of(submitted++), .slot = {f}, .memory = memory_->parked({f}), .token = f});
      }
      slow_.store->submit(batch);
      const std::size_t count = slow_.store->wait(done, {1'000'000'000});
      for (std::size_t i = 0; i < count; ++i) ready.push_back(static_cast<std::uint32_t>(done[i].token));
      completed += static_cast<std::uint32_t>(count);
    }
    const double seconds = static_cast<double>((program_.now() - began).value) * 1e-9;
    return static_cast<std::uint64_t>(static_cast<double>(requests * chunk_bytes_.value) / seconds);
  };
  using enum StoreRequest::Direction;
  const auto at_full_width = [&](auto direction_of) { return pass(6 * width, width, direction_of); };
  // the first write of a slot is slower: the file system fills its map
  at_full_width([](std::uint32_t) { return write; });
  speed.write = at_full_width([](std::uint32_t) { return write; });
  speed.read = at_full_width([](std::uint32_t) { return read; });
  speed.mixed = at_full_width([](std::uint32_t i) { return i % 2 == 0 ? read : write; });
  const std::uint64_t two_at_a_time =
      pass(2 * width, std::min(width, one_by_one.most), [](std::uint32_t) { return read; });
  if (!slow_.reads_one_by_one) slow_.reads_one_by_one = two_at_a_time > speed.read / 10 * 9;
  return speed;
}

}  // namespace vedette
