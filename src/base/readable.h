// Sizes in words: one way for errors, diagnostics, reports and the command line.
//
// Thread rule: functions of their arguments.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "vedette/units.h"

namespace vedette {

// "512 B", "10.2 MiB": the largest unit of 1024 that leaves at least 1, to a tenth, halves away from zero; up to TiB.
std::string readable(Bytes);

// "10.2 MiB (10747904 bytes)": for messages whose number may become an option's value. Below 1 KiB "512 bytes".
std::string readable_exactly(Bytes);

// "8GiB", "512MiB", "64 KiB", "4096": whole numbers of bytes or of a unit of 1024, up to TiB. nullopt: something else,
// or beyond 2^60.
std::optional<Bytes> read_size(std::string_view text);

// "500MB/s", "0.5GB/s", in bytes a second: a decimal number and MB/s or GB/s, at least 1 MB/s. nullopt: something else.
std::optional<std::uint64_t> read_speed(std::string_view text);

// "500GB/day", in bytes a day: a decimal number and MB, GB or TB, at least 1 MB. nullopt: something else.
std::optional<std::uint64_t> read_daily(std::string_view text);

}  // namespace vedette
