// The pages of the project: links between them lead somewhere, pages that sources name exist, and the README stays a
// page that takes two minutes to read.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "tidy/cpp_reader.h"
#include "tidy/sources.h"

namespace vedette::testing::docs_test {
namespace {

namespace fs = std::filesystem;

const fs::path root = VEDETTE_SOURCE_DIR;

Source page(const std::string& path) {
  std::ifstream in(root / path, std::ios::binary);
  return {path, {std::istreambuf_iterator<char>(in), {}}};
}

std::vector<Source> pages() {
  std::vector<Source> found =
      sources({"docs", "src", "include", "profiler", "tests", "bench", "examples", "python", "scripts"}, {".md"});
  for (const char* name : {"README.md", "CONTRIBUTING.md", "CONVENTIONS.md"}) found.push_back(page(name));
  return found;
}

// The anchor that a heading gets: lower case, without punctuation, blanks as '-'.
std::string anchor(const std::string& heading) {
  std::string made;
  for (const char c : heading) {
    if (c == ' ' || c == '-') made += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      made += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return made;
}

bool has_anchor(const std::string& text, const std::string& wanted) {
  static const std::regex heading(R"((?:^|\n)#+ +([^\n]*))");
  for (auto at = std::sregex_iterator(text.begin(), text.end(), heading); at != std::sregex_iterator(); ++at) {
    if (anchor((*at)[1].str()) == wanted) return true;
  }
  return false;
}

// Links of a page that lead nowhere, in the page's words.
std::vector<std::string> broken_links(const Source& from) {
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  std::vector<std::string> found;
  for (auto at = std::sregex_iterator(from.text.begin(), from.text.end(), link); at != std::sregex_iterator(); ++at) {
    const std::string target = (*at)[1].str();
    if (target.find("://") != std::string::npos) continue;
    const std::size_t hash = target.find('#');
    const std::string file = target.substr(0, hash);
    const fs::path path = file.empty() ? fs::path(from.path) : fs::path(from.path).parent_path() / file;
    if (!file.empty() && !fs::exists(root / path)) {
      found.push_back(target);
      continue;
    }
    if (hash == std::string::npos) continue;
    const std::string text = file.empty() ? from.text : page(path.generic_string()).text;
    if (!has_anchor(text, target.substr(hash + 1))) found.push_back(target);
  }
  return found;
}

TEST(Docs, LinksLeadSomewhere) {
  ASSERT_GT(pages().size(), 10u);
  for (const Source& each : pages()) {
    for (const std::string& link : broken_links(each)) ADD_FAILURE() << each.path << " links to " << link;
  }
}

TEST(Docs, PagesThatSourcesNameExist) {
  static const std::regex name(R"((^|[^\w/.])((?:docs|src|profiler|bench|tests)/[\w/-]+\.md)\b)");
  for (const Source& file :
       sources({"src", "include", "profiler", "tests", "bench", "examples", "python", "scripts", "cmake"},
               {".h", ".cc", ".cu", ".txt", ".cmake", ".sh", ".py", ".md"})) {
    if (file.path == "tests/tidy/docs_test.cc") continue;
    for (auto at = std::sregex_iterator(file.text.begin(), file.text.end(), name); at != std::sregex_iterator(); ++at)
      EXPECT_TRUE(fs::exists(root / (*at)[2].str())) << file.path << " names " << (*at)[2].str();
  }
}

TEST(Docs, TheReadmeTakesTwoMinutes) {
  const std::string text = page("README.md").text;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 100);
  EXPECT_LE(words_of(text), 900u);
}

TEST(Docs, ResultsFitOnAFewScreens) {
  const std::string text = page("docs/results.md").text;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
}

TEST(DocsTest, SeeALinkThatLeadsNowhere) {
  const std::string text = "# A b, c\n[a](README.md) [b](#a-b-c) [c](https://example.com/x) [d](docs/tools.md)\n";
  EXPECT_TRUE(broken_links({"x.md", text}).empty());
  EXPECT_EQ(broken_links({"x.md", text + "[e](docs/nothing.md)"}).size(), 1u);
  EXPECT_EQ(broken_links({"x.md", text + "[e](#a-b)"}).size(), 1u);
  EXPECT_EQ(broken_links({"docs/x.md", "[e](tools.md#nothing)"}).size(), 1u);
}

}  // namespace
}  // namespace vedette::testing::docs_test
