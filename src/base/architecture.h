// Pages and faults of x86-64 and of 64-bit Arm. No other file asks for the processor.
#pragma once
#include <unistd.h>

#include <cstddef>

#if defined(__x86_64__)
#define VEDETTE_XXHASH <xxh_x86dispatch.h>  // as wide as the processor's vectors
#else
#define VEDETTE_XXHASH <xxhash.h>
#endif

namespace vedette {

#if defined(__x86_64__)
inline constexpr std::size_t page_size = 4096;  // of every tracked mapping; huge pages are not tracked
inline constexpr unsigned user_address_bits = 47;
#else
inline const std::size_t page_size =
    static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // 4, 16 or 64 KiB: the kernel's
inline constexpr unsigned user_address_bits = 48;
#endif

// Where pages have 64 KiB, none are this large, and what asks for one goes on with small ones.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

// `context`: the third argument of SIGSEGV's handler. True where the processor does not say: a write is the safe
// assumption. From signal handlers.
bool was_write(const void* context) noexcept;

}  // namespace vedette
