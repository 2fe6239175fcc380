// The one list of policies: the command line, the tests and the benches walk it. A new policy is a file, a maker, and a line
// here.
#include <array>

#include "policy/makers.h"

namespace vedette {
namespace {

constexpr std::array table{
    PolicyEntry{"on-demand", "no paper: least recently used", "fetches when an op waits, evicts what was used longest ago",
                make_on_demand},
    PolicyEntry{"flashneuron", "FlashNeuron, FAST'21", "activations to the furthest tier, from the first on, until the rest fits",
                make_flashneuron, "which tensors compress (CSR, FP16)"},
    PolicyEntry{"flashneuron+", "FlashNeuron as in G10's artifact", "the same activations, each fetched by the op that needs it",
                make_flashneuron_of_g10, "which tensors compress (CSR, FP16)"},
    PolicyEntry{"g10", "G10, MICRO'23", "periods of most bytes x time over the line first, under the bandwidth already given away", make_g10},
    PolicyEntry{"sentinel", "Sentinel, HPCA'21", "intervals of layers, fetched one ahead; short-lived tensors never move",
                make_sentinel},
    PolicyEntry{"vedette", "no paper: our own",
                "Belady over one step against a model of both links, then repaired by what was measured", make_vedette},
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
