// docs/options.md is the reference of all options: each member of SessionOptions and each keyword of Python's Guard has
// a row, each row names what there is, and defaults are those of the sources.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tidy/sources.h"
#include "tidy/tables.h"

namespace vedette::testing::options_test {
namespace {

using Defaults = std::map<std::string, std::string>;  // by name; empty: none that is a literal

std::string file(const std::string& folder, const std::string& name) {
  for (const Source& each : sources({folder}, {name}))
    if (each.path == folder + "/" + name) return each.text;
  return {};
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const std::size_t first = text.find(begin);
  if (first == std::string::npos) return {};
  const std::size_t from = first + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

// A literal of C++ as Python writes it; empty: it is none.
std::string as_python(const std::string& value) {
  static const std::map<std::string, std::string> words{{"true", "True"}, {"false", "False"}};
  static const std::regex enumerator("\\w+::(\\w+)"), mebibytes("\\{std::uint64_t\\{(\\d+)\\} << 20\\}");
  static const std::regex literal("\"[^\"]*\"|\\d+|nullptr");
  std::smatch found;
  if (const auto word = words.find(value); word != words.end()) return word->second;
  if (std::regex_match(value, found, enumerator)) return '"' + found[1].str() + '"';
  if (std::regex_match(value, found, mebibytes)) return '"' + found[1].str() + "MiB\"";
  return std::regex_match(value, literal) ? value : "";
}

// The members of a struct, with their defaults as Python writes them.
Defaults members(const std::string& header, const std::string& name) {
  static const std::regex comment("//[^\\n]*"), member("\\s*[^;=]*?(\\w+)(?:\\s*=\\s*([^;]*))?;");
  const std::string body = std::regex_replace(between(header, "struct " + name + " {", "\n};"), comment, "");
  Defaults found;
  for (auto at = std::sregex_iterator(body.begin(), body.end(), member); at != std::sregex_iterator(); ++at)
    found[(*at)[1]] = as_python((*at)[2]);
  return found;
}

// The keywords of Guard(), with their defaults.
Defaults keywords(const std::string& stub) {
  static const std::regex keyword("\\n +(\\w+): [^\\n]* = ([^\\n]*),(?=\\n)");
  const std::string head = between(between(stub, "class Guard:", "\nclass "), "def __init__(", ") -> None:");
  Defaults found;
  for (auto at = std::sregex_iterator(head.begin(), head.end(), keyword); at != std::sregex_iterator(); ++at)
    found[(*at)[1]] = (*at)[2];
  return found;
}

// What is wrong with the page, in words.
std::vector<std::string> faults(const std::string& page, const Defaults& in_cpp, const Defaults& in_python) {
  std::vector<std::string> found;
  std::set<std::string> cpp, python;
  for (const Cells& row : rows_under(page, "| C++ | Python |")) {
    const std::string line = row.empty() ? "" : row[0];
    if (row.size() != 6) {
      found.push_back(line + ": a row has another number of cells than 6");
      continue;
    }
    const auto name = [&](const std::string& cell, const Defaults& known, std::set<std::string>& seen) -> std::string {
      if (cell == "-") return {};
      const auto spans = code_spans(cell);
      const std::string one = spans.empty() ? cell : spans[0];
      if (!known.contains(one)) found.push_back(one + " is no option");
      if (!seen.insert(one).second) found.push_back(one + " has two rows");
      return known.contains(one) ? known.at(one) : "";
    };
    const std::string cpp_default = name(row[0], in_cpp, cpp), python_default = name(row[1], in_python, python);
    const auto said = code_spans(row[3]);
    if (said.size() != 1) found.push_back(line + ": a default is one literal");
    for (const std::string& each : {cpp_default, python_default})
      if (!each.empty() && !said.empty() && each != said[0]) found.push_back(line + ": the default is " + each);
  }
  for (const auto& [each, value] : in_cpp)
    if (!cpp.contains(each)) found.push_back(each + " of C++ has no row");
  for (const auto& [each, value] : in_python)
    if (!python.contains(each)) found.push_back(each + " of Python has no row");
  return found;
}

TEST(Options, EachHasARowWithItsDefault) {
  const Defaults cpp = members(file("include/vedette", "session.h"), "SessionOptions");
  const Defaults python = keywords(file("python/vedette", "__init__.pyi"));
  ASSERT_GT(cpp.size(), 20u);
  ASSERT_GT(python.size(), 20u);
  ASSERT_NE(file("include/vedette", "torch.h").find("using GuardOptions = SessionOptions;"), std::string::npos);
  for (const std::string& each : faults(file("docs", "options.md"), cpp, python)) ADD_FAILURE() << each;
}

// Of what a guard reads; command-line tools say theirs in their help.
TEST(Options, EnvironmentVariablesAreThoseThatAGuardReads) {
  const std::string page = file("docs", "options.md");
  static const std::regex name("\"((?:VEDETTE|LOCAL|MEMORY_PRESSURE|XDG)_[A-Z_]+|RANK|WORLD_SIZE)\"");
  static const std::regex told("`([A-Z]+(?:_[A-Z]+)+|RANK)(?:=[^`]*)?`");
  std::set<std::string> read, said;
  for (const Source& each : sources({"src/adapter", "src/os", "src/session"}, {".cc", ".h"}))
    for (auto at = std::sregex_iterator(each.text.begin(), each.text.end(), name); at != std::sregex_iterator(); ++at)
      read.insert((*at)[1]);
  for (auto at = std::sregex_iterator(page.begin(), page.end(), told); at != std::sregex_iterator(); ++at)
    said.insert((*at)[1]);
  EXPECT_GT(read.size(), 6u);
  EXPECT_EQ(said, read);
}

TEST(OptionsTest, SeesARowThatIsMissingOrWrong) {
  const Defaults cpp = members(
      "struct A {\n  Bytes size;  // none; nothing\n  std::string slow = \"nvme:.\";\n  bool on = true;\n"
      "  std::function<void(int)> say = {};\n  Ticks ticks = Ticks::layers;\n  Bytes chunk = {std::uint64_t{2} << "
      "20};\n"
      "};\n",
      "A");
  EXPECT_EQ(cpp, (Defaults{{"size", ""},
                           {"slow", "\"nvme:.\""},
                           {"on", "True"},
                           {"say", ""},
                           {"ticks", "\"layers\""},
                           {"chunk", "\"2MiB\""}}));
  const Defaults python = keywords(
      "class Guard:\n    def __init__(\n        self,\n        size: int | str = None,\n        *,\n"
      "        slow: str | os.PathLike[str] = \"nvme:.\",\n    ) -> None:\n");
  EXPECT_EQ(python, (Defaults{{"size", "None"}, {"slow", "\"nvme:.\""}}));
  const Defaults few{{"size", ""}, {"slow", "\"nvme:.\""}};
  const std::string head = "| C++ | Python | form | default | what | environment |\n|---|---|---|---|---|---|\n";
  const std::string size = "| `size` | `size` | | `None` | | - |\n",
                    slow = "| `slow` | `slow` | | `\"nvme:.\"` | | - |\n";
  EXPECT_EQ(faults(head + size + slow, few, python), std::vector<std::string>());
  EXPECT_EQ(faults(head + size, few, python).size(), 2u) << "no row, in C++ and in Python";
  EXPECT_EQ(faults(head + size + slow + "| `fast` | - | | `1` | | - |\n", few, python).size(), 1u) << "no option";
  EXPECT_EQ(faults(head + size + "| `slow` | `slow` | | `\"host\"` | | - |\n", few, python).size(), 2u) << "default";
  EXPECT_EQ(faults(head + size + slow + slow, few, python).size(), 2u) << "twice";
}

}  // namespace
}  // namespace vedette::testing::options_test
