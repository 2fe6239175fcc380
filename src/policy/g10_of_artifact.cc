// "g10+": G10 (MICRO'23; see g10.cc) as its artifact has it (platformxlab/G10: src/analysis.cc, scheduling_prefetch),
// to the letter where its table shows it.
//
// Kept, where it differs from g10.cc:
// - Memory counts the trace's first tensor twice and never lets it go. A birth counts from its request,
//   which is earlier by the time that having it takes (its GPU_malloc_uspB); it is dead after the last op that reads
//   it.
// - A period weighs its bytes x the time within it for which memory is over all of fast memory, but periods are taken
//   until memory is below 0.99 of it. All are sorted again before each is taken, by an algorithm that is not stable,
//   and so in whatever order that leaves those of equal weight; once nothing is over fast memory, that is all of them,
//   and each sort is the same permutation. It ends early where that brings one to the front that was taken before. A
//   period that is too short for either link stays in front and is looked at again.
// - A period that wraps weighs less by the whole step where the first op is over fast memory (an index runs over), so
//   that none is taken then; one of a tensor that is used last by the last op begins with the step and does not wrap.
//   Periods that wrap ask nothing of the buckets and fill none. Others may fill them and bring nothing: an eviction
//   that ends as its fetch begins.
// - Where the SSD's bucket is full from the period's begin until its eviction could end alone, it goes to the host,
//   which has to have room for it all through the step. PCIe's bytes during an op are taken from the SSD's bucket
//   too, op by op, again for each eviction.
// - A GB is 2^30 bytes for the planner, and 10^9 for the simulator.
// - Fetches are made earlier, in order, while memory is below the line, whatever they bring.
// At run time all of this is hints to a driver that pages, of births, too (src/sim/pager.cc); those of one op in the
// order in which its last sort leaves them. Changed: where there are many periods they are sorted again after several
// (as many as keep it from being quadratic), not after each; the
//   plan's reasons say so. The line that it loosens by hand for BERT-512 is loosened for the test of its table alone
//   (g10/of_artifact.h).
//
// Cost of prepare: O((periods + what they span of ops that are not full) log), at most 4 million weights.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "policy/canvas/ledger.h"
#include "policy/canvas/room.h"
#include "policy/g10/bucket.h"
#include "policy/g10/of_artifact.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

constexpr double gib_per_gb = 1.073741824;

struct Period {  // ops [begin, end) without a use, counted past the end of the step
  std::uint32_t tensor = 0, begin = 0, end = 0;
  bool done = false;  // taken or left alone for good
};

struct Hint {
  std::uint32_t op = 0;
  std::uint32_t tensor = 0;
  TierIndex target;
  Verb verb = Verb::fetch;
};

struct Fetch {  // of a period that does not wrap: as late as its bucket has room
  std::uint32_t tensor = 0, cleared = 0, back = 0;
};

class Scheduler {
 public:
  Scheduler(const Ledger& ledger, double loosened)
      : ledger_(ledger),
        n_(ledger.ops()),
        clock_(ledger.trace()),
        line_(line_of(ledger, loosened)),
        tiers_(ledger.slow_tiers()),
        over_(n_),
        shifted_(n_) {
    for (const TierIndex tier : tiers_) {
      out_.emplace_back(ledger.trace(), ledger.machine().link({0}, tier), gib_per_gb);
      in_.emplace_back(ledger.trace(), ledger.machine().link(tier, {0}), gib_per_gb);
    }
    find_reads();
    count_memory();
    find_periods();
  }

  std::vector<Hint> schedule() {
    const std::size_t count = periods_.size();
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), 0U);
    const std::size_t stride = std::max<std::size_t>(1, count * count / most_weights);
    for (std::size_t i = 0; i < count && memory_.most(0, n_) > line_ && !tiers_.empty(); ++i) {
      if (over_count_ == 0) {
        if (permutation_.empty()) permute();
        front_ = permutation_[front_];
      } else if (i % stride == 0) {
        sort();
        front_ = 0;
      } else if (++front_ == count) {
        break;
      }
      Period& period = periods_[order_[front_]];
      if (period.done) break;
      period.done = take(period);
    }
    if (stride > 1)
      reasons_.push_back("g10+: of " + std::to_string(count) + " periods, one in " + std::to_string(stride) +
                         " was followed by a new sort of all");
    fetch_earlier();
    std::sort(hints_.begin(), hints_.end(), [](const Hint& a, const Hint& b) { return a.op < b.op; });
    return hints_;
  }

  std::vector<std::string> reasons() const { return reasons_; }

 private:
  static std::int64_t line_of(const Ledger& ledger, double loosened) {
    return static_cast<std::int64_t>(loosened * static_cast<double>(ledger.capacity() / 100 * 99));
  }

  // ---- its view of memory ----

  void find_reads() {
    last_read_.assign(ledger_.trace().tensors.size(), Uses::never);
    for (std::uint32_t i = 0; i < n_; ++i) {
      for (const TensorIndex t : ledger_.trace().ops[i].reads) last_read_[t.value] = i;
    }
  }
  std::uint32_t death(std::uint32_t t) const {
    return 1 + (last_read_[t] == Uses::never ? ledger_.uses().tensors[t].birth : last_read_[t]);
  }

  // Everything is there at first; tensor by tensor it is taken away where it is not born yet or dead, until that is
  // enough.
  void count_memory() {
    std::int64_t all = 0;
    const auto tensors = static_cast<std::uint32_t>(ledger_.trace().tensors.size());
    for (std::uint32_t t = 0; t < tensors; ++t) {
      if (!ledger_.uses().tensors[t].uses.empty()) all += size(t);
    }
    if (tensors > 0 && !ledger_.uses().tensors[0].uses.empty()) all += size(0);
    std::vector<std::int64_t> load(n_, all);
    for (std::uint32_t i = 0; i < n_; ++i) load[i] += static_cast<std::int64_t>(ledger_.trace().ops[i].workspace.value);
    memory_ = Room(load);
    for (std::uint32_t t = 1; t < tensors && memory_.most(0, n_) > line_; ++t) {
      const TensorUses& uses = ledger_.uses().tensors[t];
      if (uses.persistent || uses.uses.empty()) continue;
      const std::uint32_t asked = ask_for(t, uses.birth);
      memory_.add(0, asked, -size(t));
      hints_.push_back({.op = death(t), .tensor = t, .target = {0}, .verb = Verb::evict});
      memory_.add(death(t), n_, -size(t));
    }
    host_ = Room(std::vector<std::int64_t>(n_));
    peaks_ = Room(std::vector<std::int64_t>(n_));
    for (std::uint32_t i = 0; i < n_; ++i) {
      const std::int64_t bytes = memory_.at(i);
      const bool over = bytes > ledger_.capacity();
      peaks_.add(i, i + 1, over ? -bytes : -never_over);
      if (over) count_over(i, 1);
    }
  }

  std::uint32_t ask_for(std::uint32_t t, std::uint32_t birth) {
    constexpr double ns_per_byte = 0.000000814 * 1000;
    const auto ahead = static_cast<std::int64_t>(static_cast<double>(ledger_.bytes(t).value) * ns_per_byte);
    const std::uint32_t when =
        clock_.at(birth) > ahead ? std::min(birth, clock_.last_at_or_before(clock_.at(birth) - ahead)) : 0;
    hints_.push_back({.op = when, .tensor = t, .target = {0}, .verb = Verb::fetch});
    return when;
  }

  void count_over(std::uint32_t op, int sign) {
    over_count_ = sign > 0 ? over_count_ + 1 : over_count_ - 1;
    over_.add(op, sign * time_of(op));
    if (op > 0) shifted_.add(op, sign * time_of(op - 1));
    if (op == 0) first_is_over_ = sign > 0;
  }

  // The tensor is away during [begin, end), counted past the end.
  void relieve(std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
    for (; begin < end; begin = std::min(end, (begin / n_ + 1) * n_)) {
      const std::uint32_t from = begin % n_, to = std::min(n_, from + (end - begin));
      memory_.add(from, to, -bytes);
      peaks_.add(from, to, bytes);
      while (const auto op = peaks_.last_above(from, to, -ledger_.capacity() - 1)) {
        peaks_.add(*op, *op + 1, -never_over);
        count_over(static_cast<std::uint32_t>(*op), -1);
      }
    }
  }

  // ---- periods and their weights ----

  void find_periods() {
    for (std::uint32_t t = 0; t < ledger_.trace().tensors.size(); ++t) {
      const TensorUses& tensor = ledger_.uses().tensors[t];
      for (std::size_t u = 0; u + 1 < tensor.uses.size(); ++u) {
        const std::uint32_t begin = tensor.uses[u].op + 1, end = tensor.uses[u + 1].op;
        const bool needed = tensor.persistent || (last_read_[t] != Uses::never && end < death(t));
        if (begin < end && needed) periods_.push_back({.tensor = t, .begin = begin, .end = end});
      }
      if (!tensor.persistent || tensor.uses.empty()) continue;
      const std::uint32_t begin = tensor.uses.back().op + 1, first = tensor.uses.front().op;
      if (begin < n_) periods_.push_back({.tensor = t, .begin = begin, .end = first + n_});
      if (begin == n_ && first > 0) periods_.push_back({.tensor = t, .begin = 0, .end = first});
    }
  }

  double weight(const Period& period) {
    if (period.done) return 0;
    const double bytes = static_cast<double>(size(period.tensor));
    if (period.end >= n_) {
      const std::int64_t wrapped =
          period.end == n_ ? 0 : shifted_.before(period.end - n_) - (first_is_over_ ? clock_.step() : 0);
      return bytes * static_cast<double>(over_.before(n_) - over_.before(period.begin) + wrapped);
    }
    const std::uint32_t from = out_.back().forward(bytes / 2, period.begin, period.end),
                        to = in_.back().backward(bytes / 2, period.begin, period.end);
    return from < to ? bytes * static_cast<double>(over_.before(to) - over_.before(from)) : 0;
  }

  void sort() {
    weights_.resize(periods_.size());
    for (std::uint32_t p = 0; p < periods_.size(); ++p) weights_[p] = weight(periods_[p]);
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (weights_[a] != weights_[b] || weights_[a] == 0) return weights_[a] > weights_[b];
      return area(periods_[a]) > area(periods_[b]);
    });
  }
  double area(const Period& period) const {
    return static_cast<double>(length(period)) * static_cast<double>(size(period.tensor));
  }

  // The effect of a sort on equals; from then on only one of them is looked at after each.
  void permute() {
    permutation_.resize(order_.size());
    std::iota(permutation_.begin(), permutation_.end(), 0U);
    std::sort(permutation_.begin(), permutation_.end(), [](std::uint32_t, std::uint32_t) { return false; });
    front_ = 0;
  }

  // ---- taking one ----

  bool take(const Period& period) {
    if (!any_over(period) || period.end - period.begin == 1) return true;
    const std::size_t disk = tiers_.size() - 1;
    if (long_enough(period, disk)) {
      if (period.end >= n_) {
        take_wrapping(period, disk);
        return true;
      }
      const std::uint32_t ideal = clock_.last_at_or_before(clock_.at(period.begin) + one_way(period, disk));
      const bool crowded = disk > 0 && !out_[disk].any(period.begin, ideal) && host_has_room(period);
      if (take_plain(period, crowded ? 0 : disk) && crowded) fill_host(period);
    } else if (disk > 0 && long_enough(period, 0)) {
      if (!host_has_room(period)) return true;
      period.end >= n_ ? take_wrapping(period, 0) : static_cast<void>(take_plain(period, 0));
      fill_host(period);
    } else {
      return false;
    }
    return true;
  }

  bool take_plain(const Period& period, std::size_t where) {
    const auto bytes = static_cast<double>(size(period.tensor));
    const std::uint32_t cleared = out_[where].forward(bytes, period.begin, period.end),
                        back = in_[where].backward(bytes, period.begin, period.end);
    if (back <= cleared || cleared >= period.end) return false;
    hints_.push_back({.op = period.begin, .tensor = period.tensor, .target = tiers_[where], .verb = Verb::evict});
    fetches_.push_back({.tensor = period.tensor, .cleared = cleared, .back = back});
    fill(in_, where, bytes, back);
    fill(out_, where, bytes, period.begin);
    relieve(cleared + 1, back, size(period.tensor));
    return true;
  }

  void take_wrapping(const Period& period, std::size_t where) {
    const std::int64_t time = one_way(period, where);
    const std::uint32_t gone = clock_.last_at_or_before(clock_.at(period.begin) + time) + 1;
    const std::uint32_t back = clock_.last_at_or_before(clock_.at(period.end) - time - time / 2);
    if (back != period.begin) {
      hints_.push_back({.op = period.begin, .tensor = period.tensor, .target = tiers_[where], .verb = Verb::evict});
      hints_.push_back({.op = back % n_, .tensor = period.tensor, .target = {0}, .verb = Verb::fetch});
    }
    relieve(gone, back, size(period.tensor));
  }

  // Links that share a bus share its bytes.
  void fill(std::vector<Bucket>& buckets, std::size_t where, double bytes, std::uint32_t begin) const {
    Bucket &near = buckets.front(), &far = buckets.back();
    const bool shared = buckets.size() > 1 && share_a_bus();
    buckets[where].fill(bytes, begin, n_, [&](std::uint32_t op, double taken) {
      if (!shared) return;
      if (where != 0) return near.take(op, taken);
      if (near.left(op) <= 0) return far.take(op, far.left(op));
      if (const double excess = far.capacity(op) - near.left(op); excess > 0) far.take(op, excess);
    });
  }
  bool share_a_bus() const {
    return takes_from(*ledger_.machine().link({0}, tiers_.back()), *ledger_.machine().link({0}, tiers_.front()));
  }

  bool any_over(const Period& period) const {
    if (period.end < n_) return memory_.most(period.begin, period.end) > line_;
    return std::max(memory_.most(period.begin, n_), memory_.most(0, period.end - n_)) > line_;
  }
  bool host_has_room(const Period& period) const {
    return host_.most(0, n_) + size(period.tensor) <=
           static_cast<std::int64_t>(ledger_.machine().tiers[tiers_.front().value].capacity.value);
  }
  void fill_host(const Period& period) {
    host_.add(period.begin, std::min(period.end, n_), size(period.tensor));
    if (period.end > n_) host_.add(0, period.end - n_, size(period.tensor));
  }
  bool long_enough(const Period& period, std::size_t where) const {  // twice the move, and half of one way in reserve
    const std::int64_t time = one_way(period, where);
    return length(period) > 2 * time + time / 2;
  }
  std::int64_t one_way(const Period& period, std::size_t where) const {
    const Link* link = ledger_.machine().link({0}, tiers_[where]);
    const double speed = static_cast<double>(link->bytes_per_s) * gib_per_gb;
    const double carried = speed > 0 ? static_cast<double>(size(period.tensor)) * 1e9 / speed : 0;
    return ledger_.machine().fault_time.value + (where == 0 ? 0 : link->latency.value) + std::llround(carried);
  }

  void fetch_earlier() {
    std::sort(fetches_.begin(), fetches_.end(), [](const Fetch& a, const Fetch& b) { return a.back < b.back; });
    for (const Fetch& fetch : fetches_) {
      const auto last = memory_.last_above(std::min(fetch.cleared + 1, fetch.back), fetch.back, line_ - 1);
      const std::uint32_t when = last ? static_cast<std::uint32_t>(*last) + 1 : fetch.cleared + 1;
      hints_.push_back({.op = when, .tensor = fetch.tensor, .target = {0}, .verb = Verb::fetch});
      memory_.add(when, fetch.back, size(fetch.tensor));
    }
  }

  std::int64_t size(std::uint32_t t) const { return static_cast<std::int64_t>(ledger_.size(t)); }
  std::int64_t length(const Period& period) const { return clock_.at(period.end) - clock_.at(period.begin); }
  std::int64_t time_of(std::uint32_t op) const { return ledger_.trace().ops[op].time.value; }

  const Ledger& ledger_;
  std::uint32_t n_;
  Clock clock_;
  std::int64_t line_;
  std::vector<TierIndex> tiers_;  // slow ones, nearest first: host and SSD
  std::vector<Bucket> out_, in_;  // of each of them

  static constexpr std::int64_t never_over = std::int64_t{1} << 60;
  std::vector<std::uint32_t> last_read_;  // [tensor]
  Room memory_{{}}, host_{{}};            // [op]: bytes there
  // [op]: less its memory while that is over all of fast memory; far below that from then on
  Room peaks_{{}};
  TimeOver over_, shifted_;  // of those; of the op before each of those
  std::size_t over_count_ = 0;
  bool first_is_over_ = false;

  static constexpr std::size_t most_weights = 4'000'000;
  std::vector<Period> periods_;
  std::vector<std::uint32_t> order_, permutation_;
  std::uint32_t front_ = 0;
  std::vector<double> weights_;  // [period]
  std::vector<Fetch> fetches_;
  std::vector<Hint> hints_;
  std::vector<std::string> reasons_;
};

class G10OfArtifact final : public Policy {
 public:
  explicit G10OfArtifact(double loosened) : loosened_(loosened) {}

  std::string_view name() const noexcept override { return "g10+"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    moves_.assign(ledger.ops(), {});
    if (ledger.fits()) return ledger.write();
    Scheduler scheduler(ledger, loosened_);
    for (const Hint& hint : scheduler.schedule()) {
      // the driver knows dead tensors
      if (hint.op >= ledger.ops() || (hint.verb == Verb::evict && hint.target.value == 0)) continue;
      const Extent whole{.tensor = {hint.tensor}};
      moves_[hint.op].push_back({.extent = whole, .source = {0}, .target = hint.target, .verb = hint.verb});
    }
    Plan plan;
    plan.home.assign(trace.tensors.size(), {0});
    plan.fallback = Fallback::least_recent;
    plan.block = 256_KiB;
    plan.paging = Paging{};
    plan.reasons = scheduler.reasons();
    return plan;
  }

  Reaction react(const Event& event, const View&) override {
    if (event.kind != Event::Kind::op_begins || moves_.empty()) return {};
    Reaction reaction;
    reaction.moves = moves_[event.op.value];
    return reaction;
  }

 private:
  double loosened_;
  std::vector<std::vector<Move>> moves_;  // [op]: hints, when it begins
};

}  // namespace

std::unique_ptr<Policy> make_g10_of_artifact(std::uint64_t) { return make_g10_of_artifact_with_line(1); }
std::unique_ptr<Policy> make_g10_of_artifact_with_line(double loosened) {
  return std::make_unique<G10OfArtifact>(loosened);
}

}  // namespace vedette
