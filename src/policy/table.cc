// The list of policies that the command line, the tests and the benches walk, from policies.def.
#include <array>

#include "policy/makers.h"

namespace vedette {
namespace {

constexpr std::array table{
#define VEDETTE_POLICY(maker, name, paper, summary, ...) \
  PolicyEntry{name, paper, summary, make_##maker __VA_OPT__(, ) __VA_ARGS__},
#include "policy/policies.def"
#undef VEDETTE_POLICY
};

}  // namespace

std::span<const PolicyEntry> policies() noexcept { return table; }

std::unique_ptr<Policy> make_policy(std::string_view name, std::uint64_t seed) {
  for (const PolicyEntry& entry : table) {
    if (entry.name == name) return entry.make(seed);
  }
  return nullptr;
}

}  // namespace vedette
