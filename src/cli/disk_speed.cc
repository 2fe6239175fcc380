#include "cli/disk_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/mapping.h"

namespace vedette::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Direction = StoreRequest::Direction;

// Bursts with rests between them, as steps have.
constexpr Bytes burst_bytes = 192_MiB;
constexpr std::uint32_t most_slots = 2048;
constexpr int bursts = 5;
constexpr auto rest = std::chrono::milliseconds(150);

enum class Way : std::uint8_t { in, out, both };

std::uint32_t slots_of(const Store& store) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(burst_bytes.value / store.slot_bytes().value, most_slots));
}

// Every slot once, in order. Bytes a second.
Result<double> run_pass(Store& store, Way way, std::byte* memory) {
  const std::uint64_t slot_bytes = store.slot_bytes().value;
  const std::uint32_t slots = slots_of(store);
  std::vector<StoreCompletion> done(store.depth());
  std::uint64_t submitted = 0, completed = 0;
  const auto submit = [&](std::uint64_t token) {
    const bool writes = way == Way::out || (way == Way::both && submitted % 2 == 0);
    const StoreRequest request{.direction = writes ? Direction::write : Direction::read,
                               .slot = {static_cast<std::uint32_t>(submitted++)},
                               .memory = memory + token * slot_bytes,
                               .token = token};
    store.submit({&request, 1});
  };
  const auto began = Clock::now();
  for (std::uint64_t token = 0; token < std::min(store.depth(), slots); ++token) submit(token);
  while (completed < submitted) {
    const std::size_t count = store.wait(done, {1'000'000'000});
    for (const StoreCompletion& completion : std::span(done).first(count)) {
      ++completed;
      if (completion.error != 0) {
        return Error{.cause = Cause::system,
                     .message = std::string(way == Way::in    ? "reading"
                                            : way == Way::out ? "writing"
                                                              : "reading and writing") +
                                " the slow directory: " + std::strerror(completion.error),
                     .errno_value = completion.error};
      }
      if (submitted < slots) submit(completion.token);
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return static_cast<double>(completed * slot_bytes) / seconds;
}

}  // namespace

Result<LinkSpeed> measure_disk(Store& store, bool register_buffers) {
  if (auto room = store.reserve(slots_of(store)); !room) return room.error();
  auto memory =
      Mapping::reserve({store.slot_bytes().value * std::min(store.depth(), slots_of(store))}, {std::uint64_t{2} << 20});
  if (!memory) return memory.error();
  // As a session's chunks lie: a transfer from small pages is cut into many, and is half as fast.
  ::madvise(memory->data(), memory->bytes().value, MADV_HUGEPAGE);
  std::mt19937_64 random(1);  // bytes that no disk compresses
  for (std::size_t at = 0; at < memory->bytes().value; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory->data() + at, &word, sizeof word);
  }
  if (register_buffers) store.register_memory(memory->data(), memory->bytes());
  // The first pass fills slots that were never written: file systems are slower there, and reads of such slots touch no
  // disk.
  if (const auto fill = run_pass(store, Way::out, memory->data()); !fill) return fill.error();
  std::array<std::array<double, bursts>, 3> found{};
  for (int burst = 0; burst < bursts; ++burst) {
    for (const Way way : {Way::out, Way::in, Way::both}) {
      std::this_thread::sleep_for(rest);
      const auto rate = run_pass(store, way, memory->data());
      if (!rate) return rate.error();
      found[static_cast<std::size_t>(way)][static_cast<std::size_t>(burst)] = *rate;
    }
  }
  const auto median = [&](Way way) {
    auto& rates = found[static_cast<std::size_t>(way)];
    std::nth_element(rates.begin(), rates.begin() + bursts / 2, rates.end());
    return static_cast<std::uint64_t>(rates[bursts / 2]);
  };
  return LinkSpeed{.read = median(Way::in), .write = median(Way::out), .mixed = median(Way::both)};
}

Machine machine_over(const LinkSpeed& speed, Bytes memory, std::optional<Bytes> room, Bytes chunk,
                     Nanoseconds remap_time) {
  constexpr Bytes plenty{std::uint64_t{1} << 44};
  Machine machine;
  const std::optional<std::uint32_t> bus = speed.one_bus() ? std::optional<std::uint32_t>(0) : std::nullopt;
  machine.tiers = {{.name = "dram", .capacity = memory, .addressable = true},
                   {.name = "disk", .capacity = room.value_or(plenty)}};
  machine.links = {
      {.source = {1}, .target = {0}, .bytes_per_s = speed.read_alone(), .latency = {100'000}, .shared = bus},
      {.source = {0}, .target = {1}, .bytes_per_s = speed.write_alone(), .latency = {100'000}, .shared = bus}};
  machine.fault_time = {74'000};  // what a fault that userfaultfd serves takes
  machine.granule = chunk;
  machine.remap_time = remap_time;
  machine.habits = habits_of_sessions;
  return machine;
}

}  // namespace vedette::cli
