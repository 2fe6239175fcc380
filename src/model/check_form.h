// The first half of the judge: rules that hold for each entry of a plan by itself, or for its order, before anything
// runs. Pure, deterministic. Thread rule: any thread.
#pragma once
#include <optional>

#include "vedette/check.h"

namespace vedette {

// The first broken rule of well_formed, due_after_issue and allowed, or nullopt. O(ops^2) where the plan has an order
// of its own, else linear.
std::optional<Violation> check_form(const Trace&, const Machine&, const Plan&);

}  // namespace vedette
