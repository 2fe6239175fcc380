// The mark in RecordFunction's thread-local list: see training_mark.h.
#include "adapter/torch/training_mark.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace vedette::adapter {
namespace {

std::atomic<at::CallbackHandle> mark_of_training{at::INVALID_CALLBACK_HANDLE};

bool has(at::CallbackHandle mark) noexcept {
  const auto& callbacks = at::get_record_function_tls_().sorted_tls_callbacks_;
  return std::any_of(callbacks.begin(), callbacks.end(), [&](const auto& each) { return each.handle_ == mark; });
}

}  // namespace

void mark_training_thread() {
  // Of this thread, until it ends. A program may have cleared all callbacks of the thread.
  thread_local at::CallbackHandle own = at::INVALID_CALLBACK_HANDLE;
  if (own == at::INVALID_CALLBACK_HANDLE || !has(own)) {
    own = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); }));
    at::disableCallback(own);
  }
  // relaxed: a pass that begins later takes thread-local state along, and its threads get work through locks
  mark_of_training.store(own, std::memory_order_relaxed);
}

bool has_training_mark() noexcept {
  const at::CallbackHandle mark = mark_of_training.load(std::memory_order_relaxed);
  return mark != at::INVALID_CALLBACK_HANDLE && has(mark);
}

}  // namespace vedette::adapter
