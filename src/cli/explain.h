// Why a tensor moves when it does, in sentences that follow from trace, machine and plan alone.
#pragma once
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette::cli {

// `which`: a tensor's name, or its number. Throws Failure where there is none, or several of the name.
std::vector<std::string> explain(const Trace& trace, const Machine& machine, const Plan& plan,
                                 const std::string& which);

}  // namespace vedette::cli
