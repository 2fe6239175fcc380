// Limits that keep the sources readable. They hold for the columns of a line, the words of a sentence in a comment, and
// the lines of a file or function. They hold for the parameters of a function, and the functions and data members of a
// class. A struct that is part of a class with a lock has functions of its own. The subject of a sentence is a word of
// the vocabulary. Exceptions stand in exceptions.txt.
#include <gtest/gtest.h>

#include <regex>

#include "tidy/cpp_reader.h"
#include "tidy/exceptions.h"
#include "tidy/sources.h"

namespace vedette::testing::limits_test {
namespace {

constexpr std::size_t most_columns = 120, most_words = 35, most_file_lines = 450, most_function_lines = 60,
                      most_parameters = 6, most_members = 25, most_functions = 40, most_bare_members = 3;

const std::vector<std::string> library = {"src", "include", "profiler"};
const std::vector<std::string> all_folders = {"src",      "include", "profiler", "tests", "bench",
                                              "examples", "python",  "scripts",  "cmake"};
const std::vector<std::string> cpp = {".h", ".cc", ".cu"};

bool is_cpp(const std::string& path) {
  return std::any_of(cpp.begin(), cpp.end(), [&](const std::string& end) { return path.ends_with(end); });
}

std::vector<Source> library_files() { return sources(library, cpp); }
// The simulated GPU's functions are CUDA's, with CUDA's parameters; its comments are those of a test's device.
std::vector<Source> linked_files() {
  std::vector<Source> files = library_files();
  std::erase_if(files, [](const Source& file) { return file.path.starts_with("src/simulated_gpu/"); });
  return files;
}
std::vector<Source> all_files() {
  return sources(all_folders, {".h", ".cc", ".cu", ".sh", ".py", ".cmake", "CMakeLists.txt"});
}

std::string many(std::size_t n, const std::string& things, std::size_t most) {
  return std::to_string(n) + " " + things + ", of at most " + std::to_string(most);
}

std::vector<Offence> wide(const Source& file) {
  std::vector<Offence> found;
  if (file.path.ends_with(".py")) return found;  // no formatter of this project lays Python out
  for (const std::size_t line : wide_lines(file.text, most_columns, is_cpp(file.path)))
    found.push_back({file.path, line, {}, "has more than " + std::to_string(most_columns) + " columns"});
  return found;
}

std::vector<Offence> wordy(const Source& file) {
  std::vector<Offence> found;
  for (const Sentence& each :
       sentences(is_cpp(file.path) ? comment_lines(file.text) : script_comment_lines(file.text))) {
    const std::size_t words = words_of(each.text);
    if (words > most_words)
      found.push_back(
          {file.path, each.line, {}, "has a sentence of " + many(words, "words", most_words) + ": " + each.text});
  }
  return found;
}

// A sentence about "nobody" or "whoever" names no thread, op or tensor.
std::vector<Offence> nameless(const Source& file) {
  static const std::regex begins("(Who|Whoever|Whom|Nobody|Somebody|Anybody|What)\\b.*", std::regex::icase);
  static const std::regex has("\\b(who|whoever|whom|nobody|somebody|anybody)\\b", std::regex::icase);
  std::vector<Offence> found;
  for (const Sentence& each : sentences(comment_lines(file.text))) {
    const bool heading = each.text.starts_with("What always holds");
    if ((!heading && std::regex_match(each.text, begins)) || std::regex_search(each.text, has))
      found.push_back(
          {file.path, each.line, {}, "has a sentence without a word of the vocabulary as its subject: " + each.text});
  }
  return found;
}

std::vector<Offence> long_file(const Source& file) {
  const auto lines = static_cast<std::size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
  if (lines <= most_file_lines) return {};
  return {{file.path, 1, "file", "is a file of " + many(lines, "lines", most_file_lines)}};
}

std::vector<Offence> long_functions(const Source& file) {
  std::vector<Offence> found;
  for (const Function& each : functions(file.text)) {
    if (each.lines > most_function_lines)
      found.push_back({file.path, each.line, each.name,
                       each.name + " is a function of " + many(each.lines, "lines", most_function_lines)});
  }
  return found;
}

std::vector<Offence> many_parameters(const Source& file) {
  std::vector<Offence> found;
  for (const Function& each : functions(file.text)) {
    if (each.parameters > most_parameters)
      found.push_back({file.path, each.line, each.name,
                       each.name + " has " + many(each.parameters, "parameters", most_parameters)});
  }
  return found;
}

std::vector<Offence> many_members(const Source& file) {
  std::vector<Offence> found;
  for (const ClassBody& each : classes(file.text)) {
    if (each.members > most_members)
      found.push_back(
          {file.path, each.line, each.name, each.name + " has " + many(each.members, "data members", most_members)});
  }
  return found;
}

// One offence for each function that is too many: exceptions.txt gives their number, which can only fall.
std::vector<Offence> many_functions(const Source& file) {
  std::vector<Offence> found;
  for (const ClassBody& each : classes(file.text))
    for (std::size_t n = most_functions; n < each.functions; ++n)
      found.push_back(
          {file.path, each.line, each.name, each.name + " has " + many(each.functions, "functions", most_functions)});
  return found;
}

// A struct that a class with a lock has as a member, and whose fields any function of the class may change.
std::vector<Offence> bare_structs(const Source& file) {
  std::vector<Offence> found;
  const std::vector<ClassBody> all = classes(file.text);
  for (const ClassBody& each : all) {
    if (each.outer == 0 || each.functions > 0 || each.members <= most_bare_members) continue;
    const std::string& around = all[each.outer - 1].declares;
    const bool is_member = std::regex_search(around, std::regex("(?:^|[^t])\\s+" + each.name + "\\s+\\w+_\\b"));
    if (is_member && around.find("std::mutex ") != std::string::npos)
      found.push_back({file.path, each.line, each.name,
                       each.name + " is part of a class with a lock and has no function; it has " +
                           many(each.members, "data members", most_bare_members)});
  }
  return found;
}

struct Rule {
  const char* name;
  std::vector<Source> (*files)();
  std::vector<Offence> (*look)(const Source&);
};

// What ctest names a case by.
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

const std::vector<Rule> rules = {
    {"columns", all_files, wide},
    {"sentence", all_files, wordy},
    {"subject", linked_files, nameless},
    {"file-lines", library_files, long_file},
    {"function-lines", library_files, long_functions},
    {"parameters", linked_files, many_parameters},
    {"data-members", library_files, many_members},
    {"class-functions", linked_files, many_functions},
    {"bare-structs", library_files, bare_structs},
};

std::vector<Exception> listed() {
  for (const Source& file : sources({"tests/tidy"}, {"exceptions.txt"})) return read_exceptions(file.text);
  return {};
}

class Limits : public ::testing::TestWithParam<Rule> {};

TEST_P(Limits, Hold) {
  std::vector<Offence> offences;
  for (const Source& file : GetParam().files()) {
    const std::vector<Offence> found = GetParam().look(file);
    offences.insert(offences.end(), found.begin(), found.end());
  }
  const Verdict verdict = judge(GetParam().name, offences, listed());
  for (const std::string& each : verdict.unexcused) ADD_FAILURE() << each;
  for (const std::string& each : verdict.unneeded) ADD_FAILURE() << each;
  for (const std::string& each : verdict.lower) std::cout << each << "\n";
}

INSTANTIATE_TEST_SUITE_P(Of, Limits, ::testing::ValuesIn(rules), [](const ::testing::TestParamInfo<Rule>& each) {
  std::string name = each.param.name;
  std::erase(name, '-');
  return name;
});

TEST(LimitsList, NamesARuleAPathAndAReason) {
  for (const Exception& each : listed()) {
    EXPECT_TRUE(std::any_of(rules.begin(), rules.end(), [&](const Rule& rule) { return each.rule == rule.name; }))
        << "exceptions.txt has a line that is not `rule path:name reason`: " << each.rule << " " << each.path;
  }
}

// What follows shows each rule failing.

std::string lines_of(std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += "  ++x;\n";
  return text;
}

TEST(LimitsTest, SeeALineThatIsTooWide) {
  const std::string blanks(120, ' ');
  EXPECT_TRUE(wide({"a.cc", blanks + "\nint x;\n"}).empty());
  ASSERT_EQ(wide({"a.cc", "int x;\n" + blanks + ";\n"}).size(), 1u);
  EXPECT_EQ(wide({"a.cc", "int x;\n" + blanks + ";\n"})[0].line, 2u);
  EXPECT_TRUE(wide({"a.cc", "auto x = R\"(a\n" + blanks + "b)\";\n"}).empty());
  EXPECT_EQ(wide({"a.cc", "auto x = R\"(a\nb)\";\n" + blanks + ";\n"}).size(), 1u);
  EXPECT_EQ(wide({"a.sh", blanks + ";\n"}).size(), 1u);
}

TEST(LimitsTest, SeeASentenceThatIsTooLong) {
  std::string words;
  for (int i = 0; i < 18; ++i) words += " word";
  const auto found = [](const std::string& path, const std::string& text) { return wordy({path, text}).size(); };
  EXPECT_EQ(found("a.cc", "//" + words + "\n//" + words + ".\n"), 1u) << "36 words over two lines";
  EXPECT_EQ(found("a.cc", "//" + words + ".\n//" + words + ".\n"), 0u) << "two sentences";
  EXPECT_EQ(found("a.cc", "//" + words + "\n//\n//" + words + ".\n"), 0u) << "two paragraphs";
  EXPECT_EQ(found("a.cc", "//" + words + "\n// -" + words + "\n"), 0u) << "an item of a list";
  EXPECT_EQ(found("a.cc", "//" + words + ", e.g.\n//" + words + ".\n"), 1u) << "an abbreviation ends no sentence";
  EXPECT_EQ(found("a.cc", "int a;  //" + words + "\n        //" + words + "\n"), 1u) << "goes on below";
  EXPECT_EQ(found("a.cc", "int a;  //" + words + "\nint b;  //" + words + "\n"), 0u) << "one each";
  EXPECT_EQ(found("a.cc", "const char* a = \"//" + words + words + "\";\n"), 0u) << "a literal";
  EXPECT_EQ(found("a.cc", "#include <a>  //" + words + words + "\n"), 1u) << "behind an include";
  EXPECT_EQ(found("a.sh", "#!/bin/sh\n#" + words + "\n#" + words + "\n"), 1u) << "a script";
  EXPECT_EQ(found("a.sh", "x=1  #" + words + words + "\n"), 1u) << "behind a command";
}

TEST(LimitsTest, SeeASentenceWithoutASubject) {
  const auto found = [](const std::string& text) { return nameless({"a.cc", text}).size(); };
  EXPECT_EQ(found("// What an op reads.\n"), 1u);
  EXPECT_EQ(found("// An op. Whoever\n// waits goes on.\n"), 1u) << "the second one";
  EXPECT_EQ(found("int a;  // nobody waits\n"), 1u) << "behind code";
  EXPECT_EQ(found("// The thread who waits.\n"), 1u) << "anywhere";
  EXPECT_EQ(found("// What always holds: a chunk has one frame.\n// The whole of a tensor, whose ops wait.\n"), 0u);
}

TEST(LimitsTest, SeeAFileThatIsTooLong) {
  EXPECT_TRUE(long_file({"a.cc", lines_of(450)}).empty());
  EXPECT_EQ(long_file({"a.cc", lines_of(451)}).size(), 1u);
}

TEST(LimitsTest, SeeAFunctionThatIsTooLong) {
  EXPECT_TRUE(long_functions({"a.cc", "void A::f() {\n" + lines_of(58) + "}\n"}).empty());
  const auto found = long_functions({"a.cc", "namespace a {\nvoid A::f() {\n" + lines_of(59) + "}\n}\n"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "A::f");
  EXPECT_EQ(found[0].line, 2u);
}

TEST(LimitsTest, SeeAFunctionWithTooManyParameters) {
  const std::string six = "int a, std::map<int, int> b, int c = f(1, 2), int (*d)(int, int), int e, int f";
  EXPECT_TRUE(many_parameters({"a.cc", "int A::f(" + six + ") {\n}\n"}).empty());
  const auto found = many_parameters({"a.cc", "[[nodiscard]] auto A::operator()(" + six + ", int g) const {\n}\n"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "A::operator()");
}

TEST(LimitsTest, SeeAClassWithTooManyDataMembers) {
  std::string members;
  for (int i = 0; i < 23; ++i) members += "  std::function<void(int)> m" + std::to_string(i) + "_;\n";
  const std::string rest =
      "  static int s;\n  using T = int;\n  enum class E { a, b };\n  struct In {\n    int a, b;\n  };\n"
      "  int f(int a, int b) const;\n  C() : a_{1}, b_(2) {}\n  int g() { return 1; }\n  int x_ = h(1, 2), y_{3};\n";
  EXPECT_TRUE(many_members({"a.h", "class C : public D {\n public:\n" + members + rest + "};\n"}).empty());
  const auto found = many_members(
      {"a.h", "class C final : public D {\n private:\n" + members + rest + "  std::array<int, 3> z_{};\n};\n"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "C");
}

TEST(LimitsTest, SeeAClassWithTooManyFunctions) {
  std::string functions;
  for (int i = 0; i < 36; ++i) functions += "  int f" + std::to_string(i) + "(int a = 1);\n";
  const std::string rest =
      "  explicit C(int a) : a_{a}, b_(2) {}\n  template <class T>\n  void g(std::vector<T> t = {});\n"
      "  static bool h() { return x == 1; }\n  bool operator==(const C&) const = default;\n  using T = int(int);\n"
      "  struct In {\n    int k() const;\n  };\n  std::function<void(int)> m_ = [](int a) { h(a); };\n"
      "  int (*p_)(int) = nullptr;\n  int x_ = q(1), y_{3};\n  friend void r(C);\n  enum class E { a, b };\n";
  EXPECT_TRUE(many_functions({"a.h", "class C {\n public:\n" + functions + rest + "};\n"}).empty());
  const auto found = many_functions({"a.h", "class C {\n" + functions + rest + "  int s();\n  int t() {}\n};\n"});
  ASSERT_EQ(found.size(), 2u) << "one for each";
  EXPECT_EQ(found[0].name, "C");
}

TEST(LimitsTest, SeeAStructWithoutFunctionsUnderALock) {
  const auto found = [](const std::string& fields, const std::string& members) {
    return bare_structs({"a.h", "class C {\n  struct S {\n" + fields + "  };\n" + members + "};\n"}).size();
  };
  const std::string four = "    int a, b, c, d;\n";
  EXPECT_EQ(found(four, "  std::mutex mutex_;\n  S s_;\n"), 1u);
  EXPECT_EQ(found(four, "  S s_;\n"), 0u) << "no lock";
  EXPECT_EQ(found(four, "  std::mutex mutex_;\n  S s() const;\n"), 0u) << "no member";
  EXPECT_EQ(found(four + "    void f();\n", "  std::mutex mutex_;\n  S s_;\n"), 0u);
  EXPECT_EQ(found("    int a, b, c;\n", "  std::mutex mutex_;\n  S s_;\n"), 0u);
}

TEST(LimitsTest, AnExceptionIsNeededAndSuffices) {
  const std::vector<Offence> two = {{"src/a/x.cc", 3, "f", "is long"}, {"src/a/y.cc", 4, "g", "is long"}};
  const auto say = [&](const std::string& list) { return judge("r", two, read_exceptions(list)).unexcused; };
  EXPECT_EQ(say("").size(), 2u);
  EXPECT_EQ(say("# a comment\nr src/a/x.cc:f it must\n").size(), 1u);
  EXPECT_TRUE(say("r src/a/x.cc:f it must\nr src/a/y.cc:g it must\n").empty());
  EXPECT_TRUE(say("r src/a:2 they are split today\n").empty());
  EXPECT_TRUE(say("r src/a:1 they are split today\nr src/a/x.cc:1 it too\n").empty());
  EXPECT_EQ(say("r src/a:1 they are split today\n").size(), 3u) << "more than allowed: both, and the line";
  EXPECT_EQ(say("other src/a:2 another rule\n").size(), 2u);
}

TEST(LimitsTest, AnExceptionThatIsNotNeededFails) {
  const std::vector<Offence> one = {{"src/a/x.cc", 3, "f", "is long"}};
  const auto say = [&](const std::string& list) { return judge("r", one, read_exceptions(list)); };
  EXPECT_TRUE(say("r src/a/x.cc:f it must\n").unneeded.empty());
  EXPECT_EQ(say("r src/a/x.cc:f it must\nr src/a/x.cc:g it must\n").unneeded.size(), 1u);
  EXPECT_EQ(say("r src/a/x.cc:2 it must\n").unneeded.size(), 1u);
  EXPECT_TRUE(say("r src/a:2 files move today\n").unneeded.empty());
  EXPECT_EQ(say("r src/a:2 files move today\n").lower.size(), 1u);
  EXPECT_TRUE(read_exceptions("r src/a/x.cc it has no name\n")[0].rule.empty());
  EXPECT_TRUE(read_exceptions("r src/a/x.cc:f\n")[0].rule.empty()) << "it has no reason";
}

}  // namespace
}  // namespace vedette::testing::limits_test
