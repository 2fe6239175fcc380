// The one macro of the library. A broken invariant stops the program, in release builds too, because the bytes that
// moved under it can no longer be trusted. Failures that a user can meet are Results instead. Thread rule: any thread.
#pragma once

namespace vedette {
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line) noexcept;
// Writes one line to standard error with write(2) alone and aborts: safe in signal handlers and with any lock held.
[[noreturn]] void die(const char* sentence) noexcept;
}  // namespace vedette

#define VEDETTE_ASSERT(condition) \
  (static_cast<bool>(condition) ? static_cast<void>(0) : ::vedette::assertion_failed(#condition, __FILE__, __LINE__))
