// The sentences that docs/troubleshooting.md quotes are those of the sources: the words of each that are no placeholder
// stand in the literals of one file.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "tidy/sources.h"
#include "tidy/tables.h"

namespace vedette::testing::sentences_test {
namespace {

const std::regex placeholder("\\b(SIZE|N|NAME|PATH|OPTION|VALUE|WHAT|WHY|VERSION)\\b");

std::size_t letters_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c); }));
}

// The literals of a C++ or Python source. Those of one C++ statement follow each other, as do Python's adjacent ones;
// a line ends behind others, and where a value is put in by "{...}". Comments and docstrings are left out.
class Literals {
 public:
  Literals(const std::string& text, bool is_python) : text_(text), is_python_(is_python) {}

  std::string read() {
    while (at_ < text_.size()) {
      if (starts(is_python_ ? "#" : "//"))
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (is_python_ && starts("\"\"\""))
        skip_docstring();
      else if (text_[at_] == '"')
        literal();
      else if (text_[at_] == '\'' && !is_python_ && !std::isalnum(before()))
        at_ = text_[at_ + 1] == '\\' ? at_ + 4 : at_ + 3;
      else
        between();
    }
    return out_;
  }

 private:
  bool starts(const char* what) const { return text_.compare(at_, std::char_traits<char>::length(what), what) == 0; }
  unsigned char before() const { return at_ == 0 ? 0 : static_cast<unsigned char>(text_[at_ - 1]); }
  void skip_docstring() { at_ = std::min(text_.find("\"\"\"", at_ + 3), text_.size() - 3) + 3; }
  void between() {
    const char c = text_[at_++];
    const bool joins = is_python_ ? c == ' ' || c == '\n' || (c == 'f' && text_[at_] == '"') : c != ';';
    if (!joins && !out_.ends_with('\n')) out_ += '\n';
  }
  void literal() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      const std::size_t end = text_[at_] == '{' ? text_.find('}', at_) : std::string::npos;
      if (end < text_.find('"', at_)) {
        at_ = end;
        out_ += '\n';
      } else {
        out_ += text_[at_];
      }
    }
    ++at_;
  }

  const std::string& text_;
  const bool is_python_;
  std::string out_;
  std::size_t at_ = 0;
};

// Of scripts, all words: what is quoted there is not told from the rest.
std::string words_of_script(const std::string& text) {
  static const std::regex joined("\\\\\\n|\" *\\n *\""), blanks("\\s+");
  return std::regex_replace(std::regex_replace(text, joined, ""), blanks, " ");
}

std::vector<std::string> all_words() {
  std::vector<std::string> found;
  for (const Source& each : sources({"src", "include", "profiler", "python"}, {".cc", ".h"}))
    found.push_back(Literals(each.text, false).read());
  for (const Source& each : sources({"python/vedette"}, {".py"})) found.push_back(Literals(each.text, true).read());
  for (const Source& each : sources({"scripts", "cmake", "python"}, {".sh", ".cmake", "CMakeLists.txt"}))
    found.push_back(words_of_script(each.text));
  return found;
}

// The words between placeholders, without the marks at their ends.
std::vector<std::string> fixed_words(const std::string& sentence) {
  const auto is_mark = [](unsigned char c) { return !std::isalnum(c); };
  std::vector<std::string> found;
  for (auto at = std::sregex_token_iterator(sentence.begin(), sentence.end(), placeholder, -1);
       at != std::sregex_token_iterator(); ++at) {
    const std::string words = *at;
    if (letters_of(words) <= 2) continue;
    const auto first = std::find_if_not(words.begin(), words.end(), is_mark);
    found.emplace_back(first, std::find_if_not(words.rbegin(), words.rend(), is_mark).base());
  }
  return found;
}

// Empty: the sentence is one of the sources.
std::string fault(const std::string& sentence, const std::vector<std::string>& files) {
  constexpr std::size_t least = 10;  // letters that tell a sentence from others
  const std::vector<std::string> fixed = fixed_words(sentence);
  std::size_t letters = 0;
  for (const std::string& each : fixed) letters += letters_of(each);
  if (letters < least) return "has too few words of its own: " + sentence;
  const bool is_there = std::any_of(files.begin(), files.end(), [&](const std::string& words) {
    return std::all_of(fixed.begin(), fixed.end(),
                       [&](const std::string& each) { return words.find(each) != words.npos; });
  });
  return is_there ? "" : "is no sentence of the sources: " + sentence;
}

std::vector<std::string> quoted() {
  std::vector<std::string> found;
  for (const Source& each : sources({"docs"}, {"troubleshooting.md"}))
    for (const Cells& row : rows_under(each.text, "| it says |"))
      for (const std::string& sentence : code_spans(row.at(0))) found.push_back(sentence);
  return found;
}

TEST(Sentences, OfTroubleshootingAreThoseOfTheSources) {
  const std::vector<std::string> files = all_words(), sentences = quoted();
  EXPECT_GT(sentences.size(), 100u);
  for (const std::string& each : sentences)
    if (const std::string wrong = fault(each, files); !wrong.empty())
      ADD_FAILURE() << "docs/troubleshooting.md " << wrong;
}

TEST(Sentences, HaveAMeaningAndAnAnswer) {
  for (const Source& page : sources({"docs"}, {"troubleshooting.md"})) {
    for (const Cells& row : rows_under(page.text, "| it says |")) {
      ASSERT_EQ(row.size(), 3u) << row[0];
      EXPECT_FALSE(code_spans(row[0]).empty()) << row[0];
      EXPECT_TRUE(row[1].ends_with('.') && row[2].ends_with('.')) << row[0];
    }
  }
}

TEST(SentencesTest, SeeAChangedWord) {
  const std::string cpp =
      "// no disk at all is here\nfail(\"opening \" + name + (full ? \": disk full\" : \"\") +\n  \"; free some \"\n"
      "  \"\\\"of it\\\"\");\nfail('\"', fmt::format(\"write {} of them all\", n));\n";
  const std::vector<std::string> files{Literals(cpp, false).read()};
  EXPECT_EQ(fault("opening PATH: disk full; free some \"of it\"", files), "");
  EXPECT_EQ(fault("write N of them all", files), "");
  EXPECT_NE(fault("opening PATH: disk full; free any", files), "");
  EXPECT_NE(fault("no disk at all is here", files), "") << "a comment";
  EXPECT_NE(fault("SIZE of PATH", files), "") << "few words";
  const std::string python =
      "\"\"\"A docstring of some words.\"\"\"\nraise E(f\"{name}: {x!r} is no size; \"\n  f\"write {y}.\")\n";
  const std::vector<std::string> modules{Literals(python, true).read()};
  EXPECT_EQ(fault("OPTION: VALUE is no size; write VALUE.", modules), "");
  EXPECT_NE(fault("A docstring of some words.", modules), "");
  EXPECT_EQ(fault("needs N GiB of free disk", {words_of_script("fail \"$3 needs $1 GiB of free \\\ndisk\"")}), "");
}

}  // namespace
}  // namespace vedette::testing::sentences_test
