// Ops that need more than the budget: their operands come by faults, and leave again while the op runs.
#include <algorithm>
#include <utility>

#include "base/readable.h"
#include "engine/engine.h"

namespace vedette {

void Engine::go_paged() {
  if (books_.paged()) return;
  books_.go_paged();
  op_.too_large = !failed_writes_.last();
  arrived_.notify_all();
}

// Only its end shows what it needs: it allocates while it runs.
void Engine::note_paged() {
  if (!std::exchange(op_.too_large, false)) return;
  // One that waited in vain for pinned pages may be smaller than the budget.
  const std::uint32_t needs = std::max(books_.op_chunks(), books_.frames() + 1);
  paged_ops_.note(op_.name, needs);
}

void Engine::tell(const PagedOps::Op* op) {
  if (op == nullptr || !words_.heard()) return;
  const auto size = [&](std::uint64_t chunks) { return Bytes{chunks * chunk_bytes_.value}; };
  words_.tell("op '" + op->name + "' needs " + readable(size(op->chunks)) + " at once and the budget is " +
              readable(size(books_.frames())) + ": it runs paged, slowly; give fast_memory at least " +
              readable_exactly(words_.budget_for(size(std::uint64_t{op->chunks} + chunks_beside_op))));
}

void Engine::tell_what_did_not_fit() {
  const std::lock_guard lock(mutex_);
  tell(paged_ops_.take());
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
