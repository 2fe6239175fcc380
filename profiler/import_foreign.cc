// Which of the foreign formats a file has, and its reader.
#include "profiler/foreign.h"

namespace vedette {
namespace {

bool is_pickle(std::string_view bytes) noexcept {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

// PyTorch writes "schema" first; vedette's own formats have "format".
bool is_execution_trace(std::string_view bytes) noexcept {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos || bytes[first] != '{') return false;
  const std::string_view begin = bytes.substr(first, 1000);
  return begin.find("\"schema\"") != begin.npos && begin.find("\"vedette-") == begin.npos;
}

}  // namespace

bool is_foreign(std::string_view bytes) noexcept {
  return is_pickle(bytes) || is_execution_trace(bytes) || foreign::is_chakra(bytes);
}

Result<Trace> parse_foreign(std::string_view bytes) {
  const bool pickle = is_pickle(bytes), json = !pickle && is_execution_trace(bytes);
  try {
    if (pickle) return foreign::read_memory_snapshot(bytes);
    if (json) return foreign::read_execution_trace(bytes);
    return foreign::read_chakra(bytes);
  } catch (const foreign::Malformed& malformed) {
    const char* const what = pickle ? "the memory snapshot: " : json ? "the execution trace: " : "the Chakra trace: ";
    return Error{Cause::malformed_input, what + malformed.message};
  }
}

}  // namespace vedette
