// Policies in shared libraries, made by VEDETTE_OWN_POLICY of vedette/own_policy.h. Thread rule: any thread.
#pragma once
#include <string>
#include <string_view>

#include "vedette/policy.h"

namespace vedette::cli {

bool names_a_library(std::string_view policy);  // "./mine.so"; a policy of the list has no such name

// The library stays loaded until the process ends. Throws Failure, in one sentence: it cannot be loaded, is no policy,
// was built for another interface, or has the name of a policy of the list.
PolicyEntry own_policy(const std::string& file);

}  // namespace vedette::cli
