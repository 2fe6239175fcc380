// The list of exceptions from the limits of tests/tidy, tests/tidy/exceptions.txt: one line each,
// `rule path:name reason`. A number for a name allows that many offences under the path, which may be a folder; an
// exception of a longer path counts first. An exception that allows more than there is fails, so that the list only
// shrinks. Of a folder's number the test only prints by how much it can be lowered, because files move while a folder
// is rebuilt.
#pragma once
#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace vedette::testing {

struct Offence {
  std::string path;
  std::size_t line = 0;
  std::string name;   // of the function or class; empty where the rule is about a file or a line
  std::string finds;  // the end of the sentence that begins with path and line
};

struct Exception {
  std::string rule, path, name, reason;

  bool counts() const { return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos; }
  bool of_folder() const { return path.find('.') == std::string::npos; }
  bool covers(const std::string& file) const {
    return file == path || (counts() && file.starts_with(path.ends_with('/') ? path : path + "/"));
  }
};

// Lines that are empty or begin with '#' say nothing. A line that cannot be read becomes an exception without a rule.
inline std::vector<Exception> read_exceptions(const std::string& text) {
  std::vector<Exception> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Exception each;
    std::string where;
    words >> each.rule >> where;
    std::getline(words >> std::ws, each.reason);
    const std::size_t colon = where.find(':');
    if (colon == std::string::npos || each.reason.empty()) each.rule.clear();
    each.path = where.substr(0, colon);
    if (colon != std::string::npos) each.name = where.substr(colon + 1);
    found.push_back(each);
  }
  return found;
}

struct Verdict {
  std::vector<std::string> unexcused;  // one sentence for each offence that no exception allows
  std::vector<std::string> unneeded;   // for each exception of a file that allows more than there is
  std::vector<std::string> lower;      // for each exception of a folder that does
};

inline Verdict judge(const std::string& rule, const std::vector<Offence>& offences, std::vector<Exception> exceptions) {
  std::erase_if(exceptions, [&](const Exception& each) { return each.rule != rule; });
  std::stable_sort(exceptions.begin(), exceptions.end(), [](const Exception& a, const Exception& b) {
    return a.counts() != b.counts() ? b.counts() : a.path.size() > b.path.size();
  });
  std::vector<std::vector<const Offence*>> used(exceptions.size());
  Verdict verdict;
  const auto say = [&](const Offence& each) {
    verdict.unexcused.push_back(each.path + ":" + std::to_string(each.line) + " " + each.finds);
  };
  for (const Offence& each : offences) {
    const auto found = std::find_if(exceptions.begin(), exceptions.end(), [&](const Exception& e) {
      return e.covers(each.path) && (e.counts() || e.name == each.name);
    });
    if (found == exceptions.end())
      say(each);
    else
      used[static_cast<std::size_t>(found - exceptions.begin())].push_back(&each);
  }
  for (std::size_t i = 0; i < exceptions.size(); ++i) {
    const Exception& each = exceptions[i];
    const std::size_t allowed = each.counts() ? std::stoul(each.name) : std::max<std::size_t>(1, used[i].size());
    const std::string line = rule + " " + each.path + ":" + each.name;
    if (used[i].size() > allowed) {
      for (const Offence* offence : used[i]) say(*offence);
      verdict.unexcused.push_back("\"" + line + "\" in exceptions.txt allows fewer than these " +
                                  std::to_string(used[i].size()));
    } else if (used[i].size() < allowed) {
      (each.of_folder() ? verdict.lower : verdict.unneeded)
          .push_back("exceptions.txt allows more than there is: " + line + ", found " + std::to_string(used[i].size()) +
                     "; lower the number, or take the line out");
    }
  }
  return verdict;
}

}  // namespace vedette::testing
