// The context of a fault, by processor: see architecture.h.
#include "base/architecture.h"

#include <ucontext.h>

#if defined(__aarch64__)
#include <asm/sigcontext.h>
#endif

namespace vedette {

#if defined(__x86_64__)

bool was_write(const void* context) noexcept {
  constexpr long long by_write = 2;  // of the page fault's code
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & by_write) != 0;
}

#elif defined(__aarch64__)

// The signal's frame is a row of records, which a record without a magic number ends. One has the syndrome register.
bool was_write(const void* context) noexcept {
  constexpr unsigned long long by_write = 1ull << 6;  // WnR of a data abort
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
  const auto* at = reinterpret_cast<const std::byte*>(machine.__reserved);
  const auto* const end = at + sizeof machine.__reserved;
  while (at + sizeof(_aarch64_ctx) <= end) {
    const auto* const head = reinterpret_cast<const _aarch64_ctx*>(at);
    if (head->magic == ESR_MAGIC) return (reinterpret_cast<const esr_context*>(at)->esr & by_write) != 0;
    if (head->magic == 0 || head->size == 0) break;
    at += head->size;
  }
  return true;
}

#else

bool was_write(const void*) noexcept { return true; }

#endif

}  // namespace vedette
