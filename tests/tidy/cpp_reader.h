// Reads C++ sources as a reader does, without a compiler: their code without comments and literals, their functions,
// the data members of their classes, and the sentences of their comments. It knows the style of this project
// (clang-format, no macros that open braces) and no more.
#pragma once
#include <algorithm>
#include <cctype>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace vedette::testing {

// The text with comments, literals and preprocessor lines blanked, line by line as it was.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : text_(text), out_(text), raw_(text.size(), false) {}

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

  // Of each byte: does it belong to a raw string literal? Valid after blank().
  const std::vector<bool>& in_raw_string() const { return raw_; }

  // Where each `//` comment begins. Valid after blank().
  const std::vector<std::size_t>& comments() const { return comments_; }

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
    if (starts("//")) comments_.push_back(at_);
    const std::size_t found = text_.find(end, at_);
    erase_to(found == std::string::npos ? text_.size() : found + length);
  }
  void raw() {
    const std::size_t begin = at_, open = text_.find('(', at_);
    std::string end(")");
    end.append(text_, at_ + 2, open - at_ - 2).append("\"");
    until(end.c_str(), end.size());
    std::fill(raw_.begin() + static_cast<std::ptrdiff_t>(begin), raw_.begin() + static_cast<std::ptrdiff_t>(at_), true);
  }
  void literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    erase_to(end + 1);
  }
  // A directive keeps the comment behind it.
  void directive() {
    std::size_t end = text_.find('\n', at_);
    while (end != std::string::npos && end > 0 && text_[end - 1] == '\\') end = text_.find('\n', end + 1);
    if (end == std::string::npos) end = text_.size();
    const std::size_t comment = text_.find("//", at_);
    erase_to(comment < end && text_.compare(at_, 8, "#include") == 0 ? comment : end);
  }

  const std::string& text_;
  std::string out_;
  std::vector<bool> raw_;
  std::vector<std::size_t> comments_;
  std::size_t at_ = 0;
  bool line_start_ = true;
};

struct Function {
  std::size_t line = 0, lines = 0;  // its first line, counted from 1, and how many it has
  std::string name;
  std::size_t parameters = 0;
};

inline bool opens_scope(const std::string& head) {
  static const std::regex scope(R"(^\s*(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|enum|union|extern)\b)");
  return std::regex_search(head, scope);
}

// Commas of `text` outside all brackets, and one, where there is anything at all.
inline std::size_t listed_in(std::string_view text) {
  if (text.find_first_not_of(" \n") == std::string_view::npos) return 0;
  std::size_t depth = 0, count = 1;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{' || c == '<') ++depth;
    if ((c == ')' || c == ']' || c == '}' || c == '>') && depth > 0) --depth;
    count += c == ',' && depth == 0;
  }
  return count;
}

// Fills in name and number of parameters from the head of a function: all that stands in front of its body.
inline void read_head(const std::string& head, Function& function) {
  static const std::regex name(R"(((?:~?\w+\s*::\s*)*(?:operator\s*(?:\(\)|[^\s\w(]+|\s[\w:]+)|~?\w+))\s*\()");
  for (auto at = std::sregex_iterator(head.begin(), head.end(), name); at != std::sregex_iterator(); ++at) {
    const std::string found = (*at)[1].str();
    if (found == "alignas" || found == "decltype" || found == "requires" || found == "noexcept") continue;
    const std::size_t open = static_cast<std::size_t>(at->position()) + static_cast<std::size_t>(at->length());
    std::size_t end = open;
    for (std::size_t depth = 1; end < head.size(); ++end) {
      depth += head[end] == '(';
      if (head[end] == ')' && --depth == 0) break;
    }
    function.name = found;
    function.parameters = listed_in(std::string_view(head).substr(open, end - open));
    return;
  }
}

// Outermost bodies in braces whose head has parentheses: functions, and test cases.
inline std::vector<Function> functions(const std::string& source) {
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
      if (function) {
        found.push_back({head_line, 0, {}, 0});
        read_head(head, found.back());
      }
      open.push_back(inside || function);
      if (!function && !inside) head.clear();
    } else if (c == '}') {
      if (!open.empty()) open.pop_back();
      const bool ended = inside && (open.empty() || !open.back());
      if (ended) found.back().lines = line - found.back().line + 1;
      const std::size_t next = text.find_first_not_of(" \n", i + 1);
      const bool goes_on =
          // a member initialised in braces
          ended && next != std::string::npos && (text[next] == ',' || text[next] == '{');
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

struct ClassBody {
  std::size_t line = 0;  // counted from 1
  std::string name;
  std::size_t members = 0;    // data members that each object has: no statics, no functions
  std::size_t functions = 0;  // its own, with constructors and static ones; not those of nested classes
  std::size_t outer = 0;      // the class around it: its index and one; 0: none
  std::string declares;       // all statements of its body but functions with bodies
};

// Whether a statement of a class body declares a function, or is the head of one.
inline bool declares_function(const std::string& statement) {
  static const std::regex other(
      R"(^\s*(?:(?:public|private|protected)\s*:\s*)?(using|typedef|friend|static_assert)\b)");
  if (std::regex_search(statement, other)) return false;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < statement.size(); ++i) {
    const char c = statement[i];
    if (c == 'o' && statement.compare(i, 8, "operator") == 0) return true;
    depth += c == '<';
    if (c == '>' && depth > 0) --depth;
    if (c == '=' && depth == 0) return false;
    if (c == '(' && depth == 0) return statement.compare(i, 2, "(*") != 0;
  }
  return false;
}

// Data members that one statement of a class body declares. Bodies in braces have been taken out of it.
inline std::size_t members_declared(std::string statement) {
  static const std::regex noise(R"((\b(public|private|protected)\s*:)|\[\[[^\]]*\]\]|alignas\([^)]*\))");
  static const std::regex other(R"(^\s*(using|typedef|friend|static|static_assert|template|constexpr|inline)\b)");
  static const std::regex type(
      R"(^\s*(class|struct|union|enum)(\s+(class|struct))?(\s+[\w:]+)?(\s+final)?\s*(:[^,]*)?$)");
  statement = std::regex_replace(statement, noise, " ");
  if (statement.find_first_not_of(" \n") == std::string::npos) return 0;
  if (std::regex_search(statement, other) || std::regex_match(statement, type)) return 0;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < statement.size(); ++i) {
    const char c = statement[i];
    depth += c == '<';
    if (c == '>' && depth > 0) --depth;
    if (c == '=' && depth == 0) break;
    if (c == '(' && depth == 0 && statement.compare(i, 2, "(*") != 0) return 0;  // a function
  }
  return listed_in(statement);
}

// Classes and structs with bodies, nested ones and those inside functions too.
inline std::vector<ClassBody> classes(const std::string& source) {
  static const std::regex head_of_class(
      R"((?:^|[;\s>])(?:class|struct|union)\s+(?:\[\[[^\]]*\]\]\s*|alignas\([^)]*\)\s*)*([\w:]+)[^()=;]*$)");
  const std::string text = Blanker(source).blank();
  struct Scope {
    std::size_t body;  // index + 1 into `found`; 0: not a class
    std::string statement;
  };
  std::vector<ClassBody> found;
  std::vector<Scope> open{{0, {}}};
  std::size_t line = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    line += c == '\n';
    if (c == '{') {
      std::smatch match;
      const std::string& head = open.back().statement;
      const bool is_class = head.find("enum") == std::string::npos && std::regex_search(head, match, head_of_class);
      if (is_class) {
        std::size_t outer = 0;
        for (const Scope& each : open) outer = each.body != 0 ? each.body : outer;
        found.push_back({.line = line, .name = match[1].str(), .outer = outer});
      }
      open.push_back({is_class ? found.size() : 0, {}});
    } else if (c == '}' && open.size() > 1) {
      const bool was_class = open.back().body != 0;
      open.pop_back();
      std::string& statement = open.back().statement;
      const std::size_t next = text.find_first_not_of(" \n", i + 1);
      const bool goes_on =
          next != std::string::npos && std::string_view(",{;)").find(text[next]) != std::string_view::npos;
      const bool function = open.back().body != 0 && declares_function(statement);
      if (!was_class && !goes_on && function) ++found[open.back().body - 1].functions;
      if (!was_class && !goes_on && (function || open.back().body == 0)) statement.clear();
    } else if (c == ';') {
      Scope& scope = open.back();
      if (scope.body != 0) {
        ClassBody& body = found[scope.body - 1];
        body.members += members_declared(scope.statement);
        body.functions += declares_function(scope.statement) ? 1 : 0;
        body.declares += scope.statement + ";";
      }
      scope.statement.clear();
    } else {
      open.back().statement += c;
    }
  }
  return found;
}

struct Sentence {
  std::size_t line = 0;  // where its paragraph begins, counted from 1
  std::string text;
};

inline std::size_t words_of(const std::string& text) {
  std::size_t count = 0;
  bool in_word = false, counted = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n';
    if (blank) in_word = counted = false;
    in_word = in_word || !blank;
    if (in_word && !counted && std::isalnum(static_cast<unsigned char>(c))) {
      ++count;
      counted = true;
    }
  }
  return count;
}

// Cuts a paragraph into sentences: they end with a full stop, a question mark or an exclamation mark and a blank.
inline void cut_sentences(std::size_t line, const std::string& paragraph, std::vector<Sentence>& out) {
  static const std::vector<std::string> no_end = {"e.g.", "i.e.", "al.", "vs.", "cf.", "Sec.", "Fig.", "etc."};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < paragraph.size(); ++i) {
    if (paragraph[i] != '.' && paragraph[i] != '?' && paragraph[i] != '!') continue;
    std::size_t end = i + 1;
    while (end < paragraph.size() && (paragraph[end] == ')' || paragraph[end] == '"')) ++end;
    if (end < paragraph.size() && paragraph[end] != ' ') continue;
    const std::string_view so_far = std::string_view(paragraph).substr(begin, i + 1 - begin);
    if (std::any_of(no_end.begin(), no_end.end(), [&](const std::string& each) { return so_far.ends_with(each); }))
      continue;
    out.push_back({line, paragraph.substr(begin, end - begin)});
    begin = end;
  }
  if (words_of(paragraph.substr(begin)) > 0) out.push_back({line, paragraph.substr(begin)});
}

// One comment of one line: the column where it begins, its text behind the marker, and whether code stands before it.
struct CommentLine {
  std::size_t line = 0, column = 0;
  std::string text;
  bool behind_code = false;
};

inline std::vector<CommentLine> comment_lines(const std::string& source) {
  Blanker blanker(source);
  blanker.blank();
  std::vector<CommentLine> found;
  std::size_t line = 1, counted_to = 0;
  for (const std::size_t at : blanker.comments()) {
    line += static_cast<std::size_t>(std::count(source.begin() + static_cast<std::ptrdiff_t>(counted_to),
                                                source.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted_to = at;
    const std::size_t start = at == 0 ? 0 : source.rfind('\n', at - 1) + 1;
    const std::size_t end = std::min(source.find('\n', at), source.size());
    const bool behind = source.find_first_not_of(" \t", start) < at;
    found.push_back({line, at - start, source.substr(at + 2, end - at - 2), behind});
  }
  return found;
}

// The comments of scripts: lines, or ends of lines, behind a '#' that a blank follows.
inline std::vector<CommentLine> script_comment_lines(const std::string& source) {
  std::vector<CommentLine> found;
  for (std::size_t line = 1, start = 0; start < source.size(); ++line) {
    const std::size_t end = std::min(source.find('\n', start), source.size());
    const std::string text = source.substr(start, end - start);
    const std::size_t first = text.find_first_not_of(' ');
    if (first != std::string::npos && text[first] == '#' && !text.starts_with("#!"))
      found.push_back({line, first, text.substr(first + 1), false});
    else if (const std::size_t at = text.find("  # "); at != std::string::npos)
      found.push_back({line, at + 2, text.substr(at + 3), true});
    start = end + 1;
  }
  return found;
}

// The sentences of comments. A paragraph ends where a line has no comment or an empty one, where code stands before a
// comment, and at the item of a list. It also ends around lines that are drawn or set as code: three blanks, or a '|'.
inline std::vector<Sentence> sentences(const std::vector<CommentLine>& lines) {
  std::vector<Sentence> found;
  std::string paragraph;
  std::size_t first = 0;
  const auto finish = [&] {
    cut_sentences(first, paragraph, found);
    paragraph.clear();
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const CommentLine& each = lines[i];
    const bool follows = i > 0 && lines[i - 1].line + 1 == each.line && lines[i - 1].column == each.column;
    const std::size_t indent = std::min(each.text.find_first_not_of(' '), each.text.size());
    const std::string bare = each.text.substr(indent);
    const bool item = bare.starts_with("- ") || bare.starts_with("* ") ||
                      (bare.size() > 2 && std::isdigit(static_cast<unsigned char>(bare[0])) &&
                       (bare[1] == '.' || bare[1] == ')') && bare[2] == ' ');
    const bool drawn = indent >= 3 || bare.starts_with("|");
    if (!follows || each.behind_code || item || drawn || bare.empty()) finish();
    if (drawn || bare.empty()) continue;
    if (paragraph.empty()) first = each.line;
    paragraph += paragraph.empty() ? bare : " " + bare;
  }
  finish();
  return found;
}

// Lines of more than `most` columns, counted from 1. Lines with a part of a raw string literal are not among them.
inline std::vector<std::size_t> wide_lines(const std::string& source, std::size_t most, bool cpp) {
  std::vector<bool> raw(source.size(), false);
  if (cpp) {
    Blanker blanker(source);
    blanker.blank();
    raw = blanker.in_raw_string();
  }
  std::vector<std::size_t> found;
  for (std::size_t line = 1, start = 0; start < source.size(); ++line) {
    const std::size_t end = std::min(source.find('\n', start), source.size());
    const auto at = [&](std::size_t i) { return raw.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end - start > most && std::find(at(start), at(end), true) == at(end)) found.push_back(line);
    start = end + 1;
  }
  return found;
}

}  // namespace vedette::testing
