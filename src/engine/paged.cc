// Ops that need more than the budget: their operands come by faults, and leave again while the op runs.
#include <algorithm>

#include "base/readable.h"
#include "engine/engine.h"

namespace vedette {

std::string Engine::paged_sentence() const {
  const auto size = [&](std::uint64_t chunks) { return Bytes{chunks * chunk_bytes_.value}; };
  return "op '" + op_.name + "' needs " + readable(size(std::uint64_t{books_.op_chunks()})) +
         " at once and the budget is " + readable(size(books_.frames())) +
         ": it runs paged, slowly; give fast_memory at least " +
         readable_exactly(size(std::uint64_t{books_.op_chunks()} + 2));
}

void Engine::go_paged() {
  if (books_.paged()) return;
  books_.go_paged();
  if (failed_writes_.last()) return arrived_.notify_all();  // the op is not too large
  if (std::find(words_.paged_ops.begin(), words_.paged_ops.end(), op_.name) == words_.paged_ops.end()) {
    words_.paged_ops.push_back(op_.name);
    if (words_.on_message) words_.on_message(paged_sentence());
  }
  arrived_.notify_all();
}

// An op that goes through an operand in order waits for each chunk: the following ones come meanwhile.
void Engine::request_what_follows(ChunkIndex c) {
  constexpr std::uint32_t ahead = 2,
                          least_frames = 16;  // with fewer frames early chunks have left when they are wanted
  const auto operand = [&](std::uint32_t chunk) {
    return chunk < books_.used().limit().value && books_.operand(books_[{chunk}]);
  };
  const bool in_order = c.value > 0 && operand(c.value - 1) && books_[{c.value - 1}].state == ChunkState::resident;
  if (!in_order || books_.frames() < books_.held() + least_frames) return;
  for (std::uint32_t next = c.value + 1; next <= c.value + ahead && operand(next); ++next)
    if (books_[{next}].state == ChunkState::away) request({next});
}

}  // namespace vedette
