// vedette-plan-1, the JSON that `vedette plan -o` writes and `vedette check` and `vedette replay` read. Nothing in such
// a file is trusted: numbers, words and lengths are checked here, the rest by the judge.
//
// Pure; any thread.
#pragma once
#include <string>
#include <string_view>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::cli {

// malformed_input; whether the plan is sound is the judge's to say
Result<Plan> parse_plan(std::string_view json, const Trace& trace);
std::string format_plan(const Plan& plan);  // a move a line: parse_plan() gives the same plan back, but for its reasons

}  // namespace vedette::cli
