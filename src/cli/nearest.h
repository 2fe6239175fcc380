// The word that a misspelt one was meant to be. Thread rule: functions of their arguments.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vedette::cli {

// " (did you mean 'compare'?)" where one of the words is near enough; else nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& words);

}  // namespace vedette::cli
