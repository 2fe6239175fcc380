#include "tier/io_queue.h"

#include <cerrno>

namespace vedette {

bool advance(Transfer& transfer, std::int64_t result, Bytes slot_bytes) noexcept {
  if (result == -EAGAIN || result == -EINTR) {
    if (++transfer.retries < retries_per_transfer) return false;
  }
  if (result < 0) {
    transfer.error = static_cast<int>(-result);
    return true;
  }
  const std::uint64_t left = slot_bytes.value - transfer.done;
  const auto moved = static_cast<std::uint64_t>(result);
  if (moved >= left) {
    transfer.done = slot_bytes.value;
    return true;
  }
  const std::uint64_t whole = moved - moved % io_alignment;
  // the end of the file, or a device that moves less than a block: neither gets better by asking again
  if (whole == 0) {
    transfer.error = EIO;
    return true;
  }
  transfer.done += whole;
  transfer.retries = 0;
  return false;
}

}  // namespace vedette
