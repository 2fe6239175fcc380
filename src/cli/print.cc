#include "cli/print.h"

#include <unistd.h>

#include <utility>

namespace vedette::cli {

void clear_screen() { std::fputs("\x1b[H\x1b[2J", stdout); }

void print_lines(std::string_view text) {
  const std::string clean = printable_lines(text);
  std::fwrite(clean.data(), 1, clean.size(), stdout);
}

void print_data(std::string_view data) {
  if (::isatty(STDOUT_FILENO) != 0) return print_lines(data);
  std::fwrite(data.data(), 1, data.size(), stdout);
}

TerminalStream::Lines::int_type TerminalStream::Lines::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char one = traits_type::to_char_type(c);
  return xsputn(&one, 1) == 1 ? c : traits_type::eof();
}

std::streamsize TerminalStream::Lines::xsputn(const char* text, std::streamsize count) {
  begun_.append(text, static_cast<std::size_t>(count));
  write_whole_lines();
  return terminal_ ? count : 0;
}

// A line that is longer is cut, so that one without an end takes no memory.
void TerminalStream::Lines::write_whole_lines() {
  constexpr std::size_t longest = 1 << 20;
  const std::size_t last = begun_.rfind('\n');
  const std::size_t end = last != std::string::npos ? last + 1 : begun_.size() > longest ? begun_.size() : 0;
  if (end == 0) return;
  terminal_ << printable_lines(std::string_view(begun_).substr(0, end));
  begun_.erase(0, end);
}

int TerminalStream::Lines::sync() {
  terminal_ << printable_lines(std::exchange(begun_, {})) << std::flush;
  return terminal_ ? 0 : -1;
}

}  // namespace vedette::cli
