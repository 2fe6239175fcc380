// Every policy's maker, for the one list in table.cc.
#pragma once
#include <cstdint>
#include <memory>

#include "vedette/policy.h"

namespace vedette {

std::unique_ptr<Policy> make_on_demand(std::uint64_t seed);  // lru.cc
std::unique_ptr<Policy> make_flashneuron(std::uint64_t seed);  // flashneuron.cc
std::unique_ptr<Policy> make_flashneuron_of_g10(std::uint64_t seed);  // flashneuron.cc
std::unique_ptr<Policy> make_g10(std::uint64_t seed);  // g10.cc
std::unique_ptr<Policy> make_sentinel(std::uint64_t seed);   // sentinel.cc
std::unique_ptr<Policy> make_vedette(std::uint64_t seed);    // vedette.cc

}  // namespace vedette
