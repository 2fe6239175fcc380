// Unified memory, and what G10's artifact calls DeepUM+: paging below the framework, which tells it nothing.
//
// Unified memory: CUDA's managed memory as Allen and Ge describe it (IPDPS'21, "Demystifying GPU UVM cost"), in the form in which G10
// (MICRO'23, section 5.1 and its artifact, platformxlab/G10, policy `lru`) compares with it. Kept: an access of an away block faults and
// waits; who was used longest ago leaves, to the host, and to the disk when the host is full; the driver hears of no free, so dead
// blocks are kept, written out and brought back to be overwritten, and a block is in one place only, so that leaving always costs a
// transfer. Changed: blocks of 8 MiB instead of the driver's 2 MiB, 4 KiB in the artifact
// (64 MiB came out further from its figures: docs/g10.md says what was chosen after looking at them).
// DeepUM+ (`deepUM` there): Jung, Kim, Lee, ASPLOS'23, with an oracle in place of its tables. Kept: when op i begins, what op i + 8 uses
// is fetched, and room is made ahead by the least recently used outside of ops i to i + 7; dead blocks are known and leave without a
// transfer, but only in their turn. Changed: room is made 8 ops ahead for births too, but taken
// when their op begins; workspaces are no tensors here, so dead ones do not lie about.
// Cost: O(blocks log blocks) an op that lacks room.
#include <algorithm>
#include <set>
#include <vector>

#include "model/liveness.h"
#include "policy/makers.h"

namespace vedette {
namespace {

class UnifiedMemory final : public Policy {
 public:
  UnifiedMemory(std::string_view name, std::uint32_t ahead) : name_(name), ahead_(ahead) {}
  std::string_view name() const noexcept override { return name_; }

  Result<Plan> prepare(const Trace& trace, const Machine&) override {
    Plan plan;
    plan.home.assign(trace.tensors.size(), {0});
    plan.fallback = Fallback::least_recent;
    plan.after_life = ahead_ == 0 ? AfterLife::kept : AfterLife::dropped;
    plan.block = 8_MiB;
    operands_.clear();
    for (const Op& op : trace.ops) operands_.push_back(operands(op));
    return plan;
  }

  Reaction react(const Event& event, const View& view) override {
    if (ahead_ == 0 || event.kind != Event::Kind::op_begins || view.parts.empty()) return {};
    const auto count = static_cast<std::uint32_t>(operands_.size());
    const std::vector<TensorIndex>& wanted = operands_[(event.op.value + ahead_) % count];
    Reaction reaction;
    std::set<TensorIndex> born;  // by the ops until then: their room was made before, and is not this fetch's
    for (std::uint32_t i = 0; i <= ahead_; ++i) born.insert(operands_[(event.op.value + i) % count].begin(), operands_[(event.op.value + i) % count].end());
    std::uint64_t lacking = 0;
    for (const Portion& part : view.parts) {
      const std::uint64_t bytes = part.bytes.end.value - part.bytes.begin.value;
      if (part.state == Portion::State::absent && born.contains(part.tensor)) lacking += bytes;
      if (part.state != Portion::State::lies || part.tier.value == 0) continue;
      if (!std::binary_search(wanted.begin(), wanted.end(), part.tensor)) continue;
      lacking += bytes;
      reaction.moves.push_back(move(part, part.tier, {0}, Verb::fetch));
    }
    make_room(event.op.value, lacking, view, reaction);
    return reaction;
  }

 private:
  static Move move(const Portion& part, TierIndex source, TierIndex target, Verb verb) {
    return {.issue = {}, .due = {}, .extent = {.tensor = part.tensor, .part = part.bytes}, .source = source, .target = target, .verb = verb};
  }

  void make_room(std::uint32_t op, std::uint64_t lacking, const View& view, Reaction& reaction) const {
    std::uint64_t free = view.room[0].value;
    if (free >= lacking) return;
    std::set<TensorIndex> window;
    for (std::uint32_t i = 0; i <= ahead_; ++i) {
      const auto& near = operands_[(op + i) % operands_.size()];
      window.insert(near.begin(), near.end());
    }
    std::vector<const Portion*> victims;
    for (const Portion& part : view.parts) {
      if (part.state == Portion::State::leaving && part.tier.value == 0) free += part.bytes.end.value - part.bytes.begin.value;
      const bool there = part.state == Portion::State::lies || part.state == Portion::State::dead;
      if (there && part.tier.value == 0 && !window.contains(part.tensor)) victims.push_back(&part);
    }
    std::stable_sort(victims.begin(), victims.end(), [](const Portion* a, const Portion* b) { return a->last_use < b->last_use; });
    std::vector<Move> first;
    for (const Portion* part : victims) {
      if (free >= lacking) break;
      first.push_back(move(*part, {0}, {1}, Verb::evict));
      free += part->bytes.end.value - part->bytes.begin.value;
    }
    reaction.moves.insert(reaction.moves.begin(), first.begin(), first.end());
  }

  std::string_view name_;
  std::uint32_t ahead_;
  std::vector<std::vector<TensorIndex>> operands_;  // [op], ascending
};

}  // namespace

std::unique_ptr<Policy> make_unified_memory(std::uint64_t) { return std::make_unique<UnifiedMemory>("unified-memory", 0); }
std::unique_ptr<Policy> make_unified_memory_ahead(std::uint64_t) { return std::make_unique<UnifiedMemory>("deepum+", 8); }

}  // namespace vedette
