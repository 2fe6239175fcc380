// Text of files and other processes, for a terminal: what would steer it, or show other text than there is, becomes
// '?'. So do control characters (C0, DEL, C1), what turns the direction of writing or separates lines, characters of
// no width, and bytes that are no UTF-8.
//
// Thread rule: functions of their arguments.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vedette {
namespace printing {

// UTF-8 as the Unicode Standard has it (table 3-7): no longer forms, no surrogates, none above U+10FFFF.
struct Character {
  std::size_t bytes = 1;
  char32_t code = 0xfffd;  // of a byte that begins no character
};

inline Character first_of(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  char32_t code = lead & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (at(i) & 0x3fU);
  }
  constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {bytes, code};
}

inline bool steers(char32_t c) {
  constexpr struct {
    char32_t first, last;
  } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},      {0x61c, 0x61c},
                {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                {0xfeff, 0xfeff}, {0xfff0, 0xfffd}, {0xe0000, 0xe0fff}};
  for (const auto& [first, last] : ranges)
    if (c >= first && c <= last) return true;
  return false;
}

inline std::string cleaned(std::string_view text, bool lines) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_of(text);
    if (steers(c.code) && !(lines && c.code == '\n'))
      clean += '?';
    else
      clean.append(text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
  return clean;
}

}  // namespace printing

// Of one line: a line's end becomes '?', too.
inline std::string printable(std::string_view text) { return printing::cleaned(text, false); }
// Lines stay lines.
inline std::string printable_lines(std::string_view text) { return printing::cleaned(text, true); }

// As `printable`, in at most `width` bytes: the end of what is longer becomes "...". A character is whole, or cut off.
inline std::string printable(std::string_view text, std::size_t width) {
  std::string clean = printable(text);
  if (clean.size() <= width) return clean;
  constexpr std::string_view dots = "...";
  std::size_t end = width < dots.size() ? 0 : width - dots.size();
  while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xc0) == 0x80) --end;
  clean.resize(end);
  return clean.append(dots.substr(0, width));
}

// As `printable`, in at most `width` bytes: of a longer name the middle becomes "...", since names that belong together
// differ at their ends ("model.layers.0.self_attn.q_proj weight"). A third is left of the beginning.
inline std::string printable_name(std::string_view text, std::size_t width) {
  constexpr std::string_view dots = "...";
  std::string clean = printable(text);
  if (clean.size() <= width || width < 2 * dots.size()) return printable(text, width);
  const auto inside = [&](std::size_t at) { return (static_cast<unsigned char>(clean[at]) & 0xc0) == 0x80; };
  std::size_t end = (width - dots.size()) / 3, begin = clean.size() - (width - dots.size() - end);
  while (end > 0 && inside(end)) --end;
  while (begin < clean.size() && inside(begin)) ++begin;
  return clean.substr(0, end).append(dots).append(clean.substr(begin));
}

}  // namespace vedette
