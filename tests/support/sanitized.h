// Whether this program was built with a sanitizer, where a test has less to do because everything is many times slower
// there.
#pragma once

namespace vedette::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace vedette::testing
