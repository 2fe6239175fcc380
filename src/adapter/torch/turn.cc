#include "adapter/torch/turn.h"

#include <atomic>
#include <thread>

namespace vedette::adapter {
namespace {

thread_local char name_here;
std::atomic<const void*> op_thread{nullptr};  // the thread whose op runs; nullptr: none
std::atomic<bool> outside_of_nodes{false};    // that op

}  // namespace

const void* this_thread() noexcept { return &name_here; }

// relaxed: only the thread that stored its own name finds it here
bool has_turn() noexcept { return op_thread.load(std::memory_order_relaxed) == &name_here; }

bool take_turn(bool in_node) {
  if (has_turn()) return false;
  const void* nobody = nullptr;
  // acquire: pairs with the release at the end of another thread's op
  while (!op_thread.compare_exchange_weak(nobody, &name_here, std::memory_order_acquire)) {
    nobody = nullptr;
    std::this_thread::yield();
  }
  outside_of_nodes.store(!in_node, std::memory_order_relaxed);
  return true;
}

void end_turn() noexcept {
  outside_of_nodes.store(false, std::memory_order_relaxed);
  op_thread.store(nullptr, std::memory_order_release);  // pairs with take_turn()
}

// An op whose context was made in part has ended it already, and another thread may have it.
void end_turn_of_this_thread() noexcept {
  if (has_turn()) end_turn();
}

void forget_turn() noexcept {
  outside_of_nodes.store(false, std::memory_order_relaxed);
  op_thread.store(nullptr, std::memory_order_relaxed);
}

// relaxed: autograd's queues of nodes order the pass behind the op that runs it
bool turn_is_outside_of_nodes() noexcept { return outside_of_nodes.load(std::memory_order_relaxed); }

}  // namespace vedette::adapter
