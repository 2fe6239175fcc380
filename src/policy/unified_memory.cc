// Unified memory, and the DeepUM+ of G10's artifact: paging below the framework, which tells it nothing.
//
// Unified memory: CUDA's managed memory as Allen and Ge describe it (SC'21, "In-depth analyses of unified virtual
// memory system for GPU accelerated computing"; its abstract was read, not its text). It has the form in which G10
// (MICRO'23, section 5.1 and its artifact, platformxlab/G10, policy `lru`) compares with it.
// Kept: an access of an away block faults and waits. The block that came first leaves (the artifact calls that least
//   recently used), to the host, and to the disk when the host is full. The driver hears of no free, so dead blocks are
//   kept, written out and brought back to be overwritten. A block is in one place only, so leaving always costs a
//   transfer.
//
// DeepUM+ (`deepUM` there): Jung, Kim, Lee, ASPLOS'23, with an oracle in place of its tables.
// Kept: when op i begins, the operands and births of op i + 8 are requested. Such a block evicts no block that ops i to
//   i + 7 use, and waits where there is no other. A fault evicts the block that came first, whatever its use. Dead and
//   unborn blocks leave without a transfer, but only in their turn.
//
// Changed in both: blocks of 256 KiB in place of pages of 4 KiB. The rest of the driver, and where it differs:
// src/sim/pager.cc.
//
// Cost of prepare: O(accesses).
#include <algorithm>
#include <vector>

#include "model/liveness.h"
#include "policy/makers.h"

namespace vedette {
namespace {

constexpr std::uint32_t ahead = 8;

Plan paging_plan(const Trace& trace, AfterLife after_life, std::uint32_t window) {
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  plan.fallback = Fallback::least_recent;
  plan.after_life = after_life;
  plan.block = 256_KiB;
  plan.paging = Paging{.window = window};
  return plan;
}

class UnifiedMemory final : public Policy {
 public:
  std::string_view name() const noexcept override { return "unified-memory"; }
  Result<Plan> prepare(const Trace& trace, const Machine&) override { return paging_plan(trace, AfterLife::kept, 0); }
};

class PagingAhead final : public Policy {
 public:
  std::string_view name() const noexcept override { return "deepum+"; }

  Result<Plan> prepare(const Trace& trace, const Machine&) override {
    operands_.clear();
    for (const Op& op : trace.ops) operands_.push_back(operands(op));
    return paging_plan(trace, AfterLife::dropped, ahead);
  }

  Reaction react(const Event& event, const View& view) override {
    Reaction reaction;
    if (event.kind != Event::Kind::op_begins || operands_.empty()) return reaction;
    const auto then = static_cast<std::uint32_t>((event.op.value + ahead) % operands_.size());
    const std::vector<PageAccess>& pages = view.trace.pages;
    const auto first =
        std::lower_bound(pages.begin(), pages.end(), then,
                         [](const PageAccess& access, std::uint32_t op) { return access.op.value < op; });
    for (const TensorIndex t : operands_[then]) {
      bool tracked = false;
      for (auto at = first; at != pages.end() && at->op.value == then; ++at) {
        if (at->tensor != t) continue;
        tracked = true;
        const std::uint64_t page = view.trace.page_bytes.value;
        reaction.moves.push_back(
            fetch({.tensor = t, .part = Span<Bytes>{{at->pages.begin * page}, {at->pages.end * page}}}, view));
      }
      if (!tracked) reaction.moves.push_back(fetch({.tensor = t}, view));
    }
    return reaction;
  }

 private:
  static Move fetch(const Extent& extent, const View& view) {
    return {.extent = extent, .source = view.where[extent.tensor.value], .target = {0}, .verb = Verb::fetch};
  }

  std::vector<std::vector<TensorIndex>> operands_;  // [op], ascending
};

}  // namespace

std::unique_ptr<Policy> make_unified_memory(std::uint64_t) { return std::make_unique<UnifiedMemory>(); }
std::unique_ptr<Policy> make_unified_memory_ahead(std::uint64_t) { return std::make_unique<PagingAhead>(); }

}  // namespace vedette
