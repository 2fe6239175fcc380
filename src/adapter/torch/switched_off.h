// The environment's word for all guards.
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

// VEDETTE_PRESSURE=1: all guards follow memory pressure.
inline bool pressure_is_followed() {
  const char* const word = ::secure_getenv("VEDETTE_PRESSURE");
  return word != nullptr && std::string_view(word) == "1";
}

}  // namespace vedette::adapter
