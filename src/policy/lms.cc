// LMS v3: IBM's Large Model Support in the allocator (TensorFlow and PyTorch patches, 2019-2020), which DeepUM compares
// with; after the patch of bfc_allocator.cc and its document on internals.
//
// Kept: an op pins its inputs before it runs; afterwards they join the tail of a list of inactive tensors. Where an
//   allocation fails, the first of the list that is as large as the request leaves; where none is, all of them leave,
//   so that fragments coalesce. A tensor reclaimed at the same place before is paged out speculatively as soon as it is
//   inactive. Pages come in when they are pinned: nothing is fetched ahead.
// Changed: "as large as the request" is without the free neighbours that the allocator would count, since a plan has no
//   addresses; room that is free anyway is counted instead. The history of reclaims is that of the steps played before
//   the planned one.
//
// Cost of prepare: O(steps * (accesses + evictions) log).
#include <algorithm>
#include <optional>
#include <vector>

#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

// Tensors in the order of their last use, and the first of them from some place on that is large enough: a tree of the
// largest.
class Inactive {
 public:
  explicit Inactive(std::size_t tensors) : place_(tensors, none) {
    while (size_ < 2 * tensors) size_ *= 2;
    largest_.assign(2 * size_, absent);
    tensor_.resize(size_);
  }

  void used(std::uint32_t tensor, std::uint64_t bytes) {
    if (end_ == size_) close_ranks();
    if (place_[tensor] != none) set(place_[tensor], absent);
    place_[tensor] = end_;
    tensor_[end_] = tensor;
    set(end_++, static_cast<std::int64_t>(bytes));
  }
  void left(std::size_t place) {
    place_[tensor_[place]] = none;
    set(place, absent);
  }
  // nullopt: none is as large.
  std::optional<std::size_t> first(std::size_t from, std::int64_t bytes) const {
    return first(1, 0, size_, from, std::max(bytes, std::int64_t{0}));
  }
  std::uint32_t tensor(std::size_t place) const { return tensor_[place]; }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  static constexpr std::int64_t absent = -1;

  void set(std::size_t place, std::int64_t bytes) {
    std::size_t node = place + size_;
    for (largest_[node] = bytes; node > 1;) {
      node /= 2;
      largest_[node] = std::max(largest_[2 * node], largest_[2 * node + 1]);
    }
  }
  // At least half of the places are free again then.
  void close_ranks() {
    std::size_t kept = 0;
    for (std::size_t place = 0; place < size_; ++place) {
      const std::int64_t bytes = largest_[place + size_];
      if (bytes == absent) continue;
      set(place, absent);
      tensor_[kept] = tensor_[place];
      place_[tensor_[kept]] = kept;
      set(kept++, bytes);
    }
    end_ = kept;
  }
  std::optional<std::size_t> first(std::size_t node, std::size_t low, std::size_t high, std::size_t from,
                                   std::int64_t bytes) const {
    if (high <= from || largest_[node] < bytes) return std::nullopt;
    if (high - low == 1) return low;
    const std::size_t middle = (low + high) / 2;
    const auto found = first(2 * node, low, middle, from, bytes);
    return found ? found : first(2 * node + 1, middle, high, from, bytes);
  }

  std::size_t size_ = 2, end_ = 0;
  std::vector<std::int64_t> largest_;
  std::vector<std::uint32_t> tensor_;  // [place]
  std::vector<std::size_t> place_;     // [tensor]
};

class ReclaimList final : public OnlineRules {
 public:
  explicit ReclaimList(const Ledger& ledger) : inactive_(ledger.trace().tensors.size()) {}

  void begins(Residence& residence, std::uint32_t now) override {
    const Ledger& ledger = residence.ledger();
    const std::uint32_t op = now % ledger.ops();
    std::int64_t asked = static_cast<std::int64_t>(ledger.trace().ops[op].workspace.value);
    reclaim(residence, asked, asked);
    for (const std::uint32_t t : ledger.uses().operands[op]) {
      if (residence.near(t)) continue;
      asked += static_cast<std::int64_t>(ledger.size(t));
      reclaim(residence, asked, static_cast<std::int64_t>(ledger.size(t)));
    }
  }
  void ended(Residence& residence, std::uint32_t now) override {
    for (const std::uint32_t t : residence.ledger().uses().operands[now % residence.ledger().ops()])
      inactive_.used(t, residence.ledger().size(t));
  }

 private:
  // `asked` bytes by now, of which the last request is `request`.
  void reclaim(Residence& residence, std::int64_t asked, std::int64_t request) {
    if (residence.room() >= asked) return;
    const std::int64_t lacking = std::min(request, asked - residence.room());
    if (const auto place = find(residence, 0, lacking)) return give_up(residence, *place);
    for (auto place = find(residence, 0, 0); place; place = find(residence, *place + 1, 0)) give_up(residence, *place);
  }
  // A tensor that has left otherwise, or has died, is forgotten when it is met.
  std::optional<std::size_t> find(const Residence& residence, std::size_t from, std::int64_t bytes) {
    for (auto place = inactive_.first(from, bytes); place; place = inactive_.first(from, bytes)) {
      const std::uint32_t t = inactive_.tensor(*place);
      if (residence.near(t) && !residence.busy(t)) return place;
      from = *place + 1;
      if (!residence.near(t)) inactive_.left(*place);
    }
    return std::nullopt;
  }
  void give_up(Residence& residence, std::size_t place) {
    residence.leave(inactive_.tensor(place));
    inactive_.left(place);
  }

  Inactive inactive_;
};

class LargeModelSupport final : public LedgerPolicy {
 public:
  LargeModelSupport() : LedgerPolicy("lms") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    ReclaimList rules(ledger);
    Residence residence(ledger, rules);
    if (!residence.play(4)) return no_room(ledger);
    // speculation: out as soon as it is inactive, gone when it was reclaimed
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      if (!ledger.absence(g)) continue;
      Absence away = *ledger.absence(g);
      away.leave = ledger.gaps()[g].after;
      away.gone = std::min(away.gone, away.leave + ledger.ops() - 1);
      if (ledger.tier_for(g, away.leave) == away.tier) ledger.leave(g, away);
    }
    if (!ledger.settle({}, false)) return no_room(ledger);
    Plan plan = ledger.write();
    plan.fallback = Fallback::least_recent;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_lms(std::uint64_t) { return std::make_unique<LargeModelSupport>(); }

}  // namespace vedette
