// Every policy's maker, make_MAKER(seed), from the one list in policies.def.
#pragma once
#include <cstdint>
#include <memory>

#include "vedette/policy.h"

namespace vedette {

#define VEDETTE_POLICY(maker, ...) std::unique_ptr<Policy> make_##maker(std::uint64_t seed);
#include "policy/policies.def"
#undef VEDETTE_POLICY

}  // namespace vedette
