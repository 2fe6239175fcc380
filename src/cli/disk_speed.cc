#include "cli/disk_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
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
Result<double> run_pass(Store& store, Way way, std::byte* memory, std::uint32_t at_once) {
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
  for (std::uint64_t token = 0; token < std::min(at_once, slots); ++token) submit(token);
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

Result<LinkHabits> measure_disk(Store& store, bool register_buffers) {
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
  if (const auto fill = run_pass(store, Way::out, memory->data(), store.depth()); !fill) return fill.error();
  // of `at_once` in flight, after a rest
  const auto median_of = [&](Way way, std::uint32_t at_once) -> Result<std::uint64_t> {
    std::array<double, bursts> rates{};
    for (double& found : rates) {
      std::this_thread::sleep_for(rest);
      const auto rate = run_pass(store, way, memory->data(), at_once);
      if (!rate) return rate.error();
      found = *rate;
    }
    std::nth_element(rates.begin(), rates.begin() + bursts / 2, rates.end());
    return static_cast<std::uint64_t>(rates[bursts / 2]);
  };
  LinkHabits habits;
  for (const auto& [way, speed] : {std::pair{Way::out, &habits.speed.write}, std::pair{Way::in, &habits.speed.read},
                                   std::pair{Way::both, &habits.speed.mixed}}) {
    const auto rate = median_of(way, store.depth());
    if (!rate) return rate.error();
    *speed = *rate;
  }
  const auto time_of = [&](std::uint64_t speed) { return transfer_time(store.slot_bytes(), speed).value; };
  for (const std::uint32_t few : {4u, 2u, 1u}) {
    const auto rate = median_of(Way::in, few);
    if (!rate) return rate.error();
    if (few > 1 && *rate > habits.speed.read / 10 * 9) habits.reads_in_flight = few;
    if (few == 1) habits.latency = {std::max<std::int64_t>(0, time_of(*rate) - time_of(habits.speed.read))};
  }
  return habits;
}

Machine machine_over(const Measured& measured, Bytes memory, std::optional<Bytes> room, Bytes chunk) {
  constexpr Bytes plenty{std::uint64_t{1} << 44};
  const LinkSpeed& speed = measured.link.speed;
  const Nanoseconds latency = measured.link.latency;
  Machine machine;
  const std::optional<std::uint32_t> bus = speed.one_bus() ? std::optional<std::uint32_t>(0) : std::nullopt;
  machine.tiers = {{.name = "dram", .capacity = memory, .addressable = true},
                   {.name = "disk", .capacity = room.value_or(plenty)}};
  machine.links = {
      {.source = {1}, .target = {0}, .bytes_per_s = speed.read_alone(), .latency = latency, .shared = bus},
      {.source = {0}, .target = {1}, .bytes_per_s = speed.write_alone(), .latency = latency, .shared = bus}};
  machine.fault_time = measured.fault_time.value_or(default_fault_time);
  machine.granule = chunk;
  machine.interference_percent = measured.interference_percent;
  machine.remap_time = measured.remap_time;
  machine.habits = habits_of_sessions;
  machine.host_memory = {.tier = {0}, .bytes_per_s = measured.host_bytes_per_s};
  return machine;
}

}  // namespace vedette::cli
