// Text for a page of HTML or an attribute of one. Pure.
#pragma once
#include <string>

namespace vedette::cli {

inline std::string html_escaped(const std::string& words) {
  std::string safe;
  for (const char c : words) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else
      safe += c;
  }
  return safe;
}

}  // namespace vedette::cli
