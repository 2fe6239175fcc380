// Edits between two words: letters put in, left out or changed, and neighbours that changed places (Damerau, 1964).
#include "cli/nearest.h"

#include <algorithm>

namespace vedette::cli {

namespace {

std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        least[i][k] = i + k;
        continue;
      }
      least[i][k] = std::min({least[i - 1][k] + 1, least[i][k - 1] + 1, least[i - 1][k - 1] + (a[i - 1] != b[k - 1])});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
        least[i][k] = std::min(least[i][k], least[i - 2][k - 2] + 1);
    }
  }
  return least[a.size()][b.size()];
}

constexpr std::size_t longest_word = 40;  // a longer text is no mistyped word

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& words) {
  const auto bare = [](std::string_view w) { return w.substr(std::min(w.size(), w.find_first_not_of('-'))); };
  const std::string_view wrong = bare(word.substr(0, word.find('=')));
  if (wrong.empty() || wrong.size() > longest_word) return {};
  const std::string* nearest = nullptr;
  std::size_t fewest = 1 + std::max<std::size_t>(1, wrong.size() / 3);
  for (const std::string& each : words) {
    const std::string_view right = bare(each);
    if (right.empty() || right.size() > longest_word) continue;
    // the begin of a word is meant as the word
    const std::size_t far = wrong.size() > 2 && right.starts_with(wrong) ? 1 : edits(wrong, right);
    if (far < fewest) fewest = far, nearest = &each;
  }
  return nearest == nullptr ? std::string() : " (did you mean '" + *nearest + "'?)";
}

}  // namespace vedette::cli
