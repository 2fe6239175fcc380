// All that the command writes for people goes through here: texts of files, names of a recording for instance, cannot
// steer the terminal (base/printable.h).
#pragma once
#include <fmt/core.h>

#include <cstdio>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/printable.h"

namespace vedette::cli {

// An argument as it is shown: of texts one line without control characters.
template <class T>
auto shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return printable(std::string_view(value));
  else
    return value;
}

template <class T>
using Shown = decltype(shown(std::declval<const T&>()));

template <class... Args>
void print_to(std::FILE* file, fmt::format_string<Shown<Args>...> words, const Args&... args) {
  const auto write = [&](const auto&... clean) { fmt::vprint(file, words, fmt::make_format_args(clean...)); };
  write(shown(args)...);
}

template <class... Args>
void print(fmt::format_string<Shown<Args>...> words, const Args&... args) {
  print_to(stdout, words, args...);
}

void clear_screen();                      // of the terminal that standard output is
void print_lines(std::string_view text);  // on standard output, as printable_lines

// For other programs, on standard output: byte by byte, except on a terminal.
void print_data(std::string_view data);

// A stream on top of another one, which leads to a terminal: lines come there as printable_lines. What is left without
// an end of line comes with the destructor.
class TerminalStream final : public std::ostream {
 public:
  explicit TerminalStream(std::ostream& terminal) : std::ostream(nullptr), lines_(terminal) { rdbuf(&lines_); }

 private:
  class Lines final : public std::streambuf {
   public:
    explicit Lines(std::ostream& terminal) : terminal_(terminal) {}
    ~Lines() override { sync(); }

   protected:
    int_type overflow(int_type c) override;
    std::streamsize xsputn(const char* text, std::streamsize count) override;
    int sync() override;

   private:
    void write_whole_lines();
    std::ostream& terminal_;
    std::string begun_;
  };
  Lines lines_;
};

}  // namespace vedette::cli
