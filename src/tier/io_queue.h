// How the nvme store's transfers reach the kernel: one interface, two ways (io_uring, and a pool of threads where a
// container forbids it). A queue knows a file, a slot size and a depth; the file itself, its growth and its words for
// the user are nvme_store.cc's.
//
// What always holds: a transfer ends when all its bytes have moved or the kernel said no; advance() alone decides
// which. Thread rule: as Store's. register_memory() comes before the first submit() or wait(), or from the thread that
// calls them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tier/store.h"

namespace vedette {

constexpr std::uint64_t io_alignment = 4096;  // of memory, offset and length: every block device we know of takes it
constexpr std::uint32_t retries_per_transfer = 1000;  // of EAGAIN and EINTR in a row, then the errno is told

// A request on its way: `done` bytes of it have moved.
struct Transfer {
  StoreRequest request;
  std::uint64_t done = 0;
  std::uint32_t retries = 0;
  int error = 0;  // why it ended, once it has
};

// Takes the kernel's answer (bytes moved, or a negative errno). True: the transfer has ended, with `error`. False:
// issue the rest, from `done` on. A part that is no multiple of io_alignment is cut to one, since O_DIRECT could not go
// on from there.
bool advance(Transfer& transfer, std::int64_t result, Bytes slot_bytes) noexcept;

struct IoQueueOptions {
  int file = -1;  // borrowed, outlives the queue
  Bytes slot_bytes;
  std::uint32_t depth = 0;
  bool register_buffers = false;  // else register_memory() does nothing
};

class IoQueue {
 public:
  virtual ~IoQueue() = default;
  virtual void register_memory(std::byte* memory, Bytes bytes) = 0;
  virtual void submit(std::span<const StoreRequest> requests) noexcept = 0;
  virtual std::size_t wait(std::span<StoreCompletion> out, Nanoseconds timeout) noexcept = 0;
  virtual void wake() noexcept = 0;
  virtual std::string mechanism() const = 0;  // "io_uring", "pool of 8 threads"
  virtual std::string remark() const = 0;     // "registered buffers", why there are none, or nothing
};

Result<std::unique_ptr<IoQueue>> open_uring_queue(const IoQueueOptions&);
Result<std::unique_ptr<IoQueue>> open_thread_queue(const IoQueueOptions&);

}  // namespace vedette
