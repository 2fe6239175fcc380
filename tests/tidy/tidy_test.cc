// Habits that a reader relies on: functions fit on a screen, sources are ASCII, every source is in the build, and what
// is left to do has the number of an issue.
#include <gtest/gtest.h>

#include <cctype>
#include <regex>

#include "tidy/sources.h"

namespace vedette::testing {
namespace {

constexpr std::size_t most_lines = 70;

const std::vector<std::string> code_folders = {"src", "include", "profiler", "tests", "bench", "examples"};

// The text with comments, literals and preprocessor lines blanked, line by line as it was.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : text_(text), out_(text) {}

  std::string blank() {
    while (at_ < text_.size()) {
      if (starts("//"))
        until("\n", 0);
      else if (starts("/*"))
        until("*/", 2);
      else if (starts("R\""))
        raw();
      else if (text_[at_] == '"')
        literal('"');
      else if (text_[at_] == '\'' && !separates_digits())
        literal('\'');
      else if (text_[at_] == '#' && line_start_)
        directive();
      else
        step();
    }
    return out_;
  }

 private:
  bool starts(const char* what) const { return text_.compare(at_, std::char_traits<char>::length(what), what) == 0; }
  bool separates_digits() const { return at_ > 0 && std::isalnum(static_cast<unsigned char>(text_[at_ - 1])); }
  void step() {
    if (text_[at_] == '\n')
      line_start_ = true;
    else if (text_[at_] != ' ')
      line_start_ = false;
    ++at_;
  }
  void erase_to(std::size_t end) {
    for (; at_ < end && at_ < text_.size(); ++at_) {
      if (out_[at_] != '\n') out_[at_] = ' ';
    }
  }
  void until(const char* end, std::size_t length) {
    const std::size_t found = text_.find(end, at_);
    erase_to(found == std::string::npos ? text_.size() : found + length);
  }
  void raw() {
    const std::size_t open = text_.find('(', at_);
    std::string end(")");
    end.append(text_, at_ + 2, open - at_ - 2).append("\"");
    until(end.c_str(), end.size());
  }
  void literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    erase_to(end + 1);
  }
  void directive() {
    std::size_t end = text_.find('\n', at_);
    while (end != std::string::npos && end > 0 && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    erase_to(end == std::string::npos ? text_.size() : end);
  }

  const std::string& text_;
  std::string out_;
  std::size_t at_ = 0;
  bool line_start_ = true;
};

struct Function {
  std::size_t line = 0, lines = 0;  // its first line, counted from 1, and how many it has
};

bool opens_scope(const std::string& head) {
  static const std::regex scope(R"(^\s*(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|enum|union|extern)\b)");
  return std::regex_search(head, scope);
}

// Outermost bodies in braces whose head has parentheses: functions, and test cases.
std::vector<Function> functions(const std::string& source) {
  const std::string text = Blanker(source).blank();
  std::vector<Function> found;
  std::vector<bool> open;  // of each brace around: is it, or is it in, a function
  std::string head;
  std::size_t line = 1, head_line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    const bool inside = !open.empty() && open.back();
    if (c == '{') {
      const bool function = !inside && head.find('(') != std::string::npos && !opens_scope(head);
      if (function) found.push_back({head_line, 0});
      open.push_back(inside || function);
      if (!function && !inside) head.clear();
    } else if (c == '}') {
      if (!open.empty()) open.pop_back();
      const bool ended = inside && (open.empty() || !open.back());
      if (ended) found.back().lines = line - found.back().line + 1;
      const std::size_t next = text.find_first_not_of(" \n", i + 1);
      const bool goes_on = ended && next != std::string::npos &&
                           (text[next] == ',' || text[next] == '{');  // a member initialised in braces
      if (goes_on) found.pop_back();
      if (!inside || (ended && !goes_on)) head.clear();
    } else if (!inside && c == ';') {
      head.clear();
    } else if (!inside) {
      if (head.find_first_not_of(" \n") == std::string::npos) head_line = line;
      head += c;
    }
  }
  return found;
}

TEST(TidyTest, MeasuresFunctionsAsAReaderDoes) {
  const std::vector<Function> found = functions(
      "namespace a {\nstruct S {\n  S() : x_{1}, y_(2) {\n  }\n  int x_;\n};\n"
      "// { a brace in a comment\nint f(char c) {\n  if (c == '{') {\n    return 1'000;\n  }\n  return "
      "\"}\"[0];\n}\n}\n");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].line, 3u);
  EXPECT_EQ(found[0].lines, 2u);
  EXPECT_EQ(found[1].line, 8u);
  EXPECT_EQ(found[1].lines, 6u);
}

TEST(Tidy, FunctionsFitOnAScreen) {
  for (const Source& file : sources(code_folders, {".h", ".cc"})) {
    for (const Function& each : functions(file.text)) {
      EXPECT_LE(each.lines, most_lines) << file.path << ":" << each.line << " has a function of " << each.lines
                                        << " lines";
    }
  }
}

TEST(Tidy, SourcesAreAscii) {
  for (const Source& file : sources({"src", "include", "profiler", "tests", "bench", "examples", "scripts", "cmake"},
                                    {".h", ".cc", ".txt", ".cmake", ".sh"})) {
    std::size_t line = 1;
    for (char c : file.text) {
      if (c == '\n') ++line;
      if (static_cast<unsigned char>(c) < 128) continue;
      ADD_FAILURE() << file.path << ":" << line << " holds a byte that is not ASCII";
      break;
    }
  }
}

bool has_word(const std::string& text, const std::string& word) {
  const auto part_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const bool begins = at == 0 || !part_of_word(text[at - 1]);
    const bool ends = at + word.size() >= text.size() || !part_of_word(text[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

// A list names a file by its path from the list's folder or from the project's, or a test by its path under tests/ or
// its bare name beside it, without ".cc"; or it takes all that lie beside it.
bool lists(const Source& list, const std::string& file) {
  const std::string folder = list.path.substr(0, list.path.rfind('/') + 1);
  if (list.text.find("_SOURCE_DIR}/" + file) != std::string::npos) return true;
  if (!file.starts_with(folder)) return false;
  const std::string inside = file.substr(folder.size());
  if (has_word(list.text, inside)) return true;
  if (list.text.find("file(GLOB sources CONFIGURE_DEPENDS *.cc)") != std::string::npos &&
      inside.find('/') == std::string::npos)
    return true;
  const std::string bare = file.substr(0, file.size() - 3);
  if (!file.starts_with("tests/")) return false;
  return has_word(list.text, bare.substr(6)) || has_word(list.text, inside.substr(0, inside.size() - 3));
}

TEST(Tidy, EverySourceIsInTheBuild) {
  const std::vector<Source> all_lists = sources(code_folders, {"CMakeLists.txt"});
  for (const Source& file : sources(code_folders, {".cc"})) {
    const bool listed =
        std::any_of(all_lists.begin(), all_lists.end(), [&](const Source& list) { return lists(list, file.path); });
    EXPECT_TRUE(listed) << file.path << " is in no CMakeLists.txt";
  }
}

TEST(Tidy, WhatIsLeftToDoHasAnIssue) {
  const std::regex unnumbered(
      "\\bTO"
      "DO\\b(?!\\s*\\(?#\\d)");
  for (const Source& file : sources({"src", "include", "profiler", "tests", "bench", "examples", "scripts"},
                                    {".h", ".cc", ".txt", ".cmake", ".sh"})) {
    EXPECT_FALSE(std::regex_search(file.text, unnumbered))
        << file.path << " leaves something to do without the number of an issue";
  }
}

}  // namespace
}  // namespace vedette::testing
