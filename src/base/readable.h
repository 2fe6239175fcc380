// Sizes in words: one way for errors, diagnostics, reports and the command line.
//
// Thread rule: functions of their arguments.
#pragma once
#include <string>

#include "vedette/units.h"

namespace vedette {

// "512 B", "10.2 MiB": the largest unit of 1024 that leaves at least 1, to a tenth, halves away from zero; up to TiB.
std::string readable(Bytes);

// "10.2 MiB (10747904 bytes)": for messages whose number may become an option's value. Below 1 KiB "512 bytes".
std::string readable_exactly(Bytes);

}  // namespace vedette
