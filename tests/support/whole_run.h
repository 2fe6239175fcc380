// Whether scripts/test.sh --full runs a test: ctest tells it by the environment (tests/CMakeLists.txt).
#pragma once
#include <cstdlib>

namespace vedette::testing {

// Then it trains at every budget, else at fewer of them.
inline bool whole_run() { return std::getenv("VEDETTE_WHOLE") != nullptr; }

}  // namespace vedette::testing
