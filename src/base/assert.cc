#include "base/assert.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/uncancelled.h"

namespace vedette {

void die(const char* sentence) noexcept {
  const Uncancelled in_here;  // a cancelled thread would end in write(2), without the sentence
  char line[1024];
  const int n = std::snprintf(line, sizeof line, "vedette: %s\n", sentence);
  if (n > 0) [[maybe_unused]]
    const auto written = ::write(2, line, std::strlen(line));
  std::abort();
}

void assertion_failed(const char* condition, const char* file, int line) noexcept {
  char sentence[512];
  std::snprintf(sentence, sizeof sentence, "broken promise at %s:%d: %s", file, line, condition);
  die(sentence);
}

}  // namespace vedette
