// DRAGON: Markthub, Belviranli, Lee, Vetter, Matsuoka, "DRAGON: Breaking GPU Memory Capacity Limits with Direct NVM
// Access", SC'18. The text was not at hand: rules are from memory.
//
// Kept: unified memory over a file on NVMe: missing operands fault in from the furthest tier, evictions are written
//   back lazily, the least recently used first, and a fault reads ahead in the file.
// Changed: the file's order is that of the trace's tensors; reading ahead takes the one tensor behind the one that
//   faulted, where it is not larger and there is room without evicting. The page cache in host memory is not modelled.
//   A miss is fetched by the op that meets it.
//
// Cost of prepare: O(steps * (accesses + evictions * resident tensors)).
#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class FileBehind final : public OnlineRules {
 public:
  explicit FileBehind(const Ledger&) {}

  void begins(Residence&, std::uint32_t) override { missed_.clear(); }
  void misses(Residence&, std::uint32_t, std::uint32_t tensor) override { missed_.push_back(tensor); }
  void ready(Residence& residence, std::uint32_t) override {
    for (const std::uint32_t t : missed_) {
      const bool last = t + 1 >= residence.ledger().trace().tensors.size();
      if (!last && residence.ledger().size(t + 1) <= residence.ledger().size(t)) residence.fetch(t + 1);
    }
  }

 private:
  std::vector<std::uint32_t> missed_;
};

}  // namespace

std::unique_ptr<Policy> make_dragon(std::uint64_t) {
  return std::make_unique<OnlinePolicy<FileBehind>>("dragon", 4, Ledger::From::furthest);
}

}  // namespace vedette
