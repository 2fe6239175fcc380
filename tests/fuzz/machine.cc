// vedette-machine-1's reader: what it takes, its writer gives back.
#include "vedette/machine.h"

#include <cstdlib>
#include <string_view>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto machine = vedette::parse_machine({reinterpret_cast<const char*>(data), size});
  if (!machine) return 0;
  const std::string text = vedette::format_machine(*machine);
  const auto again = vedette::parse_machine(text);
  if (!again || vedette::format_machine(*again) != text) std::abort();
  return 0;
}
