// Guards that do nothing because the environment says so.
//
// Thread rule: as getenv: none changes the environment meanwhile.
#pragma once
#include <cstdlib>
#include <string_view>

namespace vedette::adapter {

// VEDETTE_OFF=1 runs a program plain; "0" and nothing leave its guards on.
inline bool guards_are_switched_off() {
  const char* const said = ::secure_getenv("VEDETTE_OFF");
  return said != nullptr && *said != '\0' && std::string_view(said) != "0";
}

}  // namespace vedette::adapter
