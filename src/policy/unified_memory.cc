// Unified memory, and what G10's artifact calls DeepUM+: paging below the framework, which tells it nothing.
//
// Unified memory: CUDA's managed memory as Allen and Ge describe it (SC'21, "In-depth analyses of unified virtual memory system for GPU
// accelerated computing"; its abstract was read, not its text), in the form in which G10
// (MICRO'23, section 5.1 and its artifact, platformxlab/G10, policy `lru`) compares with it. Kept: an access of an away block faults and
// waits; who was used longest ago leaves, to the host, and to the disk when the host is full; the driver hears of no free, so dead
// blocks are kept, written out and brought back to be overwritten, and a block is in one place only, so that leaving always costs a
// transfer. Changed: blocks of 8 MiB instead of the driver's 2 MiB, 4 KiB in the artifact
// (64 MiB came out further from its figures: docs/g10.md says what was chosen after looking at them).
// DeepUM+ (`deepUM` there): Jung, Kim, Lee, ASPLOS'23, with an oracle in place of its tables. Kept: when op i begins, what op i + 8 uses
// is asked for, births as well, which hold their room from then on. Two queues in order, fetches and births; the room for their heads is made by the least
// recently used outside of ops i to i + 7, and where there is nobody else they wait. What the op at hand lacks makes room by the least recently used
// of all but its operands. Dead blocks are known and leave without a transfer, but only in their turn; a block is in one place only.
// Changed: room is made at the beginning of an op for what is asked for until then, in blocks of 8 MiB.
// Cost: O(blocks log blocks) an op that lacks room.
#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "model/liveness.h"
#include "policy/makers.h"

namespace vedette {
namespace {

Plan paging_plan(const Trace& trace, AfterLife after_life) {
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  plan.fallback = Fallback::least_recent;
  plan.after_life = after_life;
  plan.one_copy = true;
  plan.block = 8_MiB;
  return plan;
}

class UnifiedMemory final : public Policy {
 public:
  std::string_view name() const noexcept override { return "unified-memory"; }
  Result<Plan> prepare(const Trace& trace, const Machine&) override { return paging_plan(trace, AfterLife::kept); }
};

class PagingAhead final : public Policy {
 public:
  std::string_view name() const noexcept override { return "deepum+"; }

  Result<Plan> prepare(const Trace& trace, const Machine&) override {
    operands_.clear();
    for (const Op& op : trace.ops) operands_.push_back(operands(op));
    fetches_.clear();
    births_.clear();
    held_.clear();
    return paging_plan(trace, AfterLife::dropped);
  }

  Reaction react(const Event& event, const View& view) override {
    if (event.kind != Event::Kind::op_begins || view.parts.empty() || operands_.empty()) return {};
    Round round(*this, event.op.value, view);
    round.ask(operands_[(event.op.value + ahead) % operands_.size()]);
    round.serve_the_op();
    round.serve_queues();
    return std::move(round.reaction);
  }

 private:
  static constexpr std::uint32_t ahead = 8;

  // What is decided when one op begins.
  struct Round {
    Round(PagingAhead& policy, std::uint32_t op, const View& view);
    void ask(const std::vector<TensorIndex>& tensors);
    void serve_the_op();
    void serve_queues();
    bool make_room(std::uint64_t bytes, bool for_the_op);
    std::uint64_t lacking(TensorIndex t) const;  // bytes that are not in fast memory nor on their way

    PagingAhead& p;
    std::uint32_t op;
    const View& view;
    Reaction reaction;
    std::vector<std::uint32_t> first;          // [tensor]: of its parts
    std::vector<char> window, now;             // [tensor]: operand of op i .. i + 7; of op i
    std::vector<const Portion*> residents;     // least recently used first
    std::size_t spared_at = 0, at = 0;         // next victims: outside of the window, and any
    std::vector<char> sent;                    // [resident]
    std::int64_t free = 0;                     // of fast memory, less what is on its way in or held for births
  };

  std::vector<std::vector<TensorIndex>> operands_;  // [op], ascending
  std::deque<TensorIndex> fetches_, births_;        // asked for and not served
  std::set<TensorIndex> held_;                      // not born, their room is theirs
};

std::uint64_t size_of(const Portion& part) { return part.bytes.end.value - part.bytes.begin.value; }

PagingAhead::Round::Round(PagingAhead& policy, std::uint32_t at_op, const View& seen)
    : p(policy), op(at_op), view(seen), first(seen.trace.tensors.size() + 1), window(seen.trace.tensors.size()), now(seen.trace.tensors.size()), free(static_cast<std::int64_t>(seen.room[0].value)) {
  for (const Portion& part : view.parts) ++first[part.tensor.value + 1];
  for (std::size_t t = 0; t + 1 < first.size(); ++t) first[t + 1] += first[t];
  for (std::uint32_t i = 0; i < ahead; ++i) {
    for (const TensorIndex t : p.operands_[(op + i) % p.operands_.size()]) window[t.value] = 1;
  }
  for (const TensorIndex t : p.operands_[op]) {
    now[t.value] = 1;
    p.held_.erase(t);
  }
  for (const Portion& part : view.parts) {
    const auto bytes = static_cast<std::int64_t>(size_of(part));
    if (part.state == Portion::State::coming) free -= bytes;
    if (part.state == Portion::State::leaving && part.tier.value == 0) free += bytes;
    const bool there = part.state == Portion::State::lies || part.state == Portion::State::dead;
    if (there && part.tier.value == 0 && now[part.tensor.value] == 0) residents.push_back(&part);
  }
  for (const TensorIndex t : p.held_) free -= static_cast<std::int64_t>(view.trace.tensors[t.value].bytes.value);
  std::stable_sort(residents.begin(), residents.end(), [](const Portion* a, const Portion* b) { return a->last_use < b->last_use; });
  sent.resize(residents.size());
}

std::uint64_t PagingAhead::Round::lacking(TensorIndex t) const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = first[t.value]; i < first[t.value + 1]; ++i) {
    const Portion& part = view.parts[i];
    const bool away = part.state == Portion::State::lies && part.tier.value != 0;
    if (away || part.state == Portion::State::absent) sum += size_of(part);
  }
  return sum;
}

void PagingAhead::Round::ask(const std::vector<TensorIndex>& tensors) {
  for (const TensorIndex t : tensors) {
    if (first[t.value] == first[t.value + 1]) continue;
    const bool absent = view.parts[first[t.value]].state == Portion::State::absent;
    if (absent && p.held_.contains(t)) continue;
    if (lacking(t) > 0) (absent ? p.births_ : p.fetches_).push_back(t);
  }
}

// What it lacks and nobody served comes as it faults; all that is done ahead is the room.
void PagingAhead::Round::serve_the_op() {
  std::uint64_t bytes = 0;
  for (const TensorIndex t : p.operands_[op]) bytes += lacking(t);
  free -= static_cast<std::int64_t>(bytes);
  make_room(0, true);
  const auto mine = [&](TensorIndex t) { return now[t.value] != 0; };
  std::erase_if(p.fetches_, mine);
  std::erase_if(p.births_, mine);
}

bool PagingAhead::Round::make_room(std::uint64_t bytes, bool for_the_op) {
  std::size_t& next = for_the_op ? at : spared_at;
  while (free < static_cast<std::int64_t>(bytes)) {
    while (next < residents.size() && (sent[next] != 0 || (!for_the_op && window[residents[next]->tensor.value] != 0))) ++next;
    if (next == residents.size()) return false;
    const Portion& part = *residents[next];
    reaction.moves.push_back({.issue = {}, .due = {}, .extent = {.tensor = part.tensor, .part = part.bytes}, .source = {0}, .target = {1}, .verb = Verb::evict});
    sent[next] = 1;
    free += static_cast<std::int64_t>(size_of(part));
  }
  return true;
}

void PagingAhead::Round::serve_queues() {
  for (; !p.fetches_.empty(); p.fetches_.pop_front()) {
    const TensorIndex t = p.fetches_.front();
    for (std::uint32_t i = first[t.value]; i < first[t.value + 1]; ++i) {
      const Portion& part = view.parts[i];
      if (part.state != Portion::State::lies || part.tier.value == 0) continue;
      if (!make_room(size_of(part), false)) return;
      free -= static_cast<std::int64_t>(size_of(part));
      reaction.moves.push_back({.issue = {}, .due = {}, .extent = {.tensor = t, .part = part.bytes}, .source = part.tier, .target = {0}, .verb = Verb::fetch});
    }
  }
  for (; !p.births_.empty(); p.births_.pop_front()) {
    const TensorIndex t = p.births_.front();
    const std::uint64_t bytes = view.trace.tensors[t.value].bytes.value;
    if (view.parts[first[t.value]].state != Portion::State::absent) continue;
    if (!make_room(bytes, false)) return;
    free -= static_cast<std::int64_t>(bytes);
    p.held_.insert(t);
  }
}

}  // namespace

std::unique_ptr<Policy> make_unified_memory(std::uint64_t) { return std::make_unique<UnifiedMemory>(); }
std::unique_ptr<Policy> make_unified_memory_ahead(std::uint64_t) { return std::make_unique<PagingAhead>(); }

}  // namespace vedette
