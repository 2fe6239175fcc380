#include "cli/disk_speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "base/mapping.h"

namespace vedette::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Direction = StoreRequest::Direction;

constexpr std::uint32_t most_slots = 128;
constexpr auto time_each_way = std::chrono::seconds(1);

struct Pass {
  std::uint32_t slots = 0;           // completed at least once, from slot 0 on
  double bytes_per_s = 0;
};

// Keeps the store busy for a second, slot after slot, round and round.
Result<Pass> run_pass(Store& store, Direction direction, std::uint32_t slots, std::byte* memory) {
  const std::uint64_t slot_bytes = store.slot_bytes().value;
  std::vector<StoreCompletion> done(store.depth());
  std::uint64_t submitted = 0, completed = 0;
  const auto submit = [&](std::uint64_t token) {
    const StoreRequest request{.direction = direction,
                               .slot = {static_cast<std::uint32_t>(submitted++ % slots)},
                               .memory = memory + token * slot_bytes,
                               .token = token};
    store.submit({&request, 1});
  };
  const auto began = Clock::now();
  for (std::uint64_t token = 0; token < std::min(store.depth(), slots); ++token) submit(token);
  auto now = began;
  while (completed < submitted) {
    const std::size_t count = store.wait(done, {1'000'000'000});
    now = Clock::now();
    for (const StoreCompletion& completion : std::span(done).first(count)) {
      ++completed;
      if (completion.error != 0) {
        return Error{.cause = Cause::system,
                     .message = std::string(direction == Direction::read ? "reading" : "writing") + " the slow directory: " +
                                std::strerror(completion.error),
                     .errno_value = completion.error};
      }
      if (now - began < time_each_way) submit(completion.token);
    }
  }
  const double seconds = std::chrono::duration<double>(now - began).count();
  return Pass{.slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(completed, slots)),
              .bytes_per_s = static_cast<double>(completed * slot_bytes) / seconds};
}

}  // namespace

Result<DiskSpeed> measure_disk(Store& store, bool register_buffers) {
  if (auto room = store.reserve(most_slots); !room) return room.error();
  auto memory = Mapping::reserve({store.slot_bytes().value * store.depth()}, {std::uint64_t{2} << 20});
  if (!memory) return memory.error();
  std::mt19937_64 random(1);  // bytes that no disk compresses
  for (std::size_t at = 0; at < memory->bytes().value; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(memory->data() + at, &word, sizeof word);
  }
  if (register_buffers) store.register_memory(memory->data(), memory->bytes());
  // The first pass fills slots that were never written: file systems are slower there, and reads of such slots touch no disk.
  const auto fill = run_pass(store, Direction::write, most_slots, memory->data());
  if (!fill) return fill.error();
  const auto write = run_pass(store, Direction::write, fill->slots, memory->data());
  if (!write) return write.error();
  const auto read = run_pass(store, Direction::read, fill->slots, memory->data());
  if (!read) return read.error();
  return DiskSpeed{.write_bytes_per_s = static_cast<std::uint64_t>(write->bytes_per_s),
                   .read_bytes_per_s = static_cast<std::uint64_t>(read->bytes_per_s)};
}

}  // namespace vedette::cli
