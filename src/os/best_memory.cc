// Chooses how chunks move on this machine by behaviour, not by version: each mechanism serves one fault of another
// thread in a small arena and must bring back every byte.
#include <atomic>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "base/mapping.h"
#include "base/quiet_thread.h"
#include "os/chunk_memory.h"

namespace vedette {
namespace {

using Open = Result<std::unique_ptr<ChunkMemory>> (*)(ChunkMemoryOptions);

constexpr ChunkIndex here{0}, there{1};
constexpr FrameIndex first{0}, second{1};

// Written in one chunk, taken away, met by a fault of another thread, shown again: the same bytes, at the same place.
Result<void> behaves(Open open, Bytes chunk_bytes) {
  auto arena = Mapping::reserve({2 * chunk_bytes.value}, chunk_bytes);
  if (!arena) return arena.error();
  std::atomic<ChunkMemory*> served{nullptr};  // by the memory's own thread, which runs before the memory is returned
  auto opened = open({.arena = arena->data(),
                      .chunks = 2,
                      .frames = 2,
                      .chunk_bytes = chunk_bytes,
                      .on_fault = [&served](const Fault& fault) { served.load()->show(first, fault.chunk); }});
  if (!opened) return opened.error();
  ChunkMemory* const memory = opened->get();
  served = memory;
  const std::size_t bytes = chunk_bytes.value;
  memory->show(first, here);
  memory->show(second, there);
  std::memset(arena->data(), 0x5a, bytes);
  std::memset(arena->data() + bytes, 0x3c, bytes);
  VEDETTE_ASSERT(memory->hide(here, first));
  served = memory;  // again: the thread that serves the fault sees all of the above
  unsigned char seen = 0;
  start_quiet_thread([&] { seen = *reinterpret_cast<volatile unsigned char*>(arena->data() + bytes / 2); }).join();
  const bool right = seen == 0x5a && std::memcmp(arena->data(), arena->data() + 1, bytes - 1) == 0 &&
                     std::to_integer<int>(arena->data()[bytes]) == 0x3c &&
                     std::memcmp(arena->data() + bytes, arena->data() + bytes + 1, bytes - 1) == 0;
  if (right) return {};
  return Error{.cause = Cause::unavailable,
               .message = std::string(memory->mechanism()) + ": bytes were lost in the test at the start"};
}

}  // namespace

Result<std::unique_ptr<ChunkMemory>> open_best_memory(ChunkMemoryOptions options) {
  std::string refused;
  for (const Open open : {open_move_memory, open_remap_memory, open_signal_memory}) {
    if (auto right = behaves(open, options.chunk_bytes); !right) {
      refused += (refused.empty() ? "" : "; ") + right.error().message;
      continue;
    }
    return open(std::move(options));
  }
  return Error{.cause = Cause::unavailable, .message = "no way to move memory works on this machine: " + refused};
}

}  // namespace vedette
