// "g10+" with a line that is not 0.99 of fast memory but so many times that. Its artifact's source sets such a factor
// by hand for one network and batch size; the test of its table gives it for that one. No policy of the list has it.
#pragma once
#include <memory>

#include "vedette/policy.h"

namespace vedette {

std::unique_ptr<Policy> make_g10_of_artifact_with_line(double loosened);

}  // namespace vedette
