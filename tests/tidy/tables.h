// Tables of Markdown pages, as cells.
#pragma once
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace vedette::testing {

using Cells = std::vector<std::string>;

// "| a | b |" is {"a", "b"}. A bar inside of a code span separates nothing.
inline Cells cells_of(const std::string& line) {
  Cells found;
  std::string cell;
  bool in_code = false;
  for (std::size_t i = 1; i < line.size(); ++i) {
    in_code ^= line[i] == '`';
    if (line[i] != '|' || in_code) {
      cell += line[i];
      continue;
    }
    const std::size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    found.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    cell.clear();
  }
  return found;
}

// The rows of all tables whose header begins with `header`.
inline std::vector<Cells> rows_under(const std::string& page, const std::string& header) {
  std::vector<Cells> rows;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(header)) {
      inside = true;
      std::getline(lines, line);  // of dashes
    } else if (!line.starts_with('|')) {
      inside = false;
    } else if (inside) {
      rows.push_back(cells_of(line));
    }
  }
  return rows;
}

// What stands between backticks, in single or double ones.
inline std::vector<std::string> code_spans(const std::string& cell) {
  static const std::regex span("``\\s?(.+?)\\s?``|`([^`]+)`");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(cell.begin(), cell.end(), span); at != std::sregex_iterator(); ++at)
    found.push_back((*at)[1].matched ? (*at)[1].str() : (*at)[2].str());
  return found;
}

}  // namespace vedette::testing
