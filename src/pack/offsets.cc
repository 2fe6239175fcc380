#include "pack/offsets.h"

#include <algorithm>
#include <numeric>

#include "pack/exact.h"
#include "pack/first_fit.h"
#include "pack/orders.h"

namespace vedette::pack {
namespace {

constexpr std::size_t most_for_search = 2500;      // buffers of one part: a search keeps all pairs that meet
constexpr std::size_t most_for_permutations = 7;
const std::vector<Order> every_order{Order::size, Order::length, Order::balanced, Order::birth, Order::pressure, Order::area};

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

class Planner {
 public:
  Planner(const Problem& problem, std::optional<Bytes> capacity, Effort effort) : problem_(problem), capacity_(capacity), effort_(effort) {}

  Layout plan();

 private:
  struct Part {                      // buffers whose offsets are to be found above `base`, in a time that no other of them crosses
    std::vector<std::uint32_t> buffers;
    std::uint64_t base = 0;
  };

  bool done() const { return best_.peak.value <= goal_; }
  bool searchable() const;
  void first_fits();
  void first_fit(Order order, std::uint64_t steps);
  void permutations();
  void search();
  std::vector<Part> parts_of(Part whole, std::vector<std::uint64_t>& offset) const;
  std::uint64_t search(const Part& part, std::uint64_t enough, std::vector<std::uint64_t>& offset);
  void stack(const Part& part, std::vector<std::uint64_t>& offset) const;
  std::uint64_t top_of(const Part& part, const std::vector<std::uint64_t>& offset) const;
  std::uint64_t bytes(std::uint32_t b) const { return round_up(problem_.buffers[b].bytes.value, problem_.buffers[b].alignment); }
  Sections span_of(std::uint32_t b) const { return {timeline_.of(b).front().begin, timeline_.of(b).back().end}; }
  std::uint64_t peak_of(const std::vector<std::uint64_t>& offset) const;

  const Problem& problem_;
  const std::optional<Bytes> capacity_;
  Effort effort_;
  Timeline timeline_;
  std::vector<std::uint64_t> load_;
  std::uint64_t goal_ = 0;           // a peak that needs no more effort
  Layout best_;
};

std::uint64_t Planner::peak_of(const std::vector<std::uint64_t>& offset) const {
  std::uint64_t peak = 0;
  for (std::uint32_t b = 0; b < offset.size(); ++b)
    if (!timeline_.of(b).empty()) peak = std::max(peak, offset[b] + problem_.buffers[b].bytes.value);
  return peak;
}

bool Planner::searchable() const {
  if (!problem_.away.empty() || problem_.chunk != 0) return false;
  return std::all_of(problem_.buffers.begin(), problem_.buffers.end(), [&](const Buffer& b) { return b.alignment == problem_.buffers.front().alignment; });
}

Layout Planner::plan() {
  const std::size_t count = problem_.buffers.size();
  timeline_ = cut_time(problem_);
  load_ = loads(problem_, timeline_);
  best_.bound = most_live(problem_);
  goal_ = capacity_ ? std::max(capacity_->value, best_.bound.value) : best_.bound.value;
  best_.offset.assign(count, 0);
  best_.peak = {~std::uint64_t{0}};
  if (effort_.greedy == 0) effort_.greedy = std::max<std::uint64_t>(20'000'000, 250 * count);
  if (effort_.exact == 0) effort_.exact = capacity_ ? 4'000'000'000 : 250'000'000;
  first_fits();
  if (!done() && searchable()) search();
  if (!done() && best_.peak > best_.bound && count <= most_for_permutations) permutations();
  return std::move(best_);
}

void Planner::first_fits() {
  // The order of birth is the cheapest, and so comes first where there are many buffers; else what is most often best.
  const bool many = problem_.buffers.size() > 50'000;
  const std::vector<Order> orders = many ? std::vector{Order::birth, Order::length, Order::pressure, Order::size} : every_order;
  for (const Order order : orders) {
    if (done() || effort_.greedy == 0) return;
    first_fit(order, effort_.greedy);
  }
}

void Planner::first_fit(Order order, std::uint64_t steps) {
  AddressTree tree(timeline_.count);
  std::vector<std::uint64_t> offset(problem_.buffers.size(), 0);
  std::uint64_t peak = 0;
  const bool first = best_.how.empty();
  for (const std::uint32_t b : sorted(problem_, timeline_, load_, order)) {
    const Buffer& buffer = problem_.buffers[b];
    const Shape shape{.bytes = buffer.bytes.value, .alignment = buffer.alignment, .chunk = problem_.chunk};
    offset[b] = tree.first_fit(timeline_.of(b), shape);
    const std::uint64_t end = offset[b] + buffer.bytes.value;
    tree.insert(timeline_.of(b), offset[b], end);
    peak = std::max(peak, end);
    if (!first && (peak >= best_.peak.value || tree.steps() > steps)) break;
  }
  effort_.greedy -= std::min(effort_.greedy, tree.steps());
  if (peak >= best_.peak.value || (!first && tree.steps() > steps)) return;
  best_.offset = std::move(offset);
  best_.peak = {peak};
  best_.how = name(order);
}

// In the order of the offsets of a best plan, first fit puts nobody higher than that plan does: some permutation is best.
void Planner::permutations() {
  std::vector<std::uint32_t> order(problem_.buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  do {
    AddressTree tree(timeline_.count);
    std::vector<std::uint64_t> offset(order.size(), 0);
    for (const std::uint32_t b : order) {
      const Buffer& buffer = problem_.buffers[b];
      if (timeline_.of(b).empty() || buffer.bytes.value == 0) continue;
      offset[b] = tree.first_fit(timeline_.of(b), {.bytes = buffer.bytes.value, .alignment = buffer.alignment, .chunk = problem_.chunk});
      tree.insert(timeline_.of(b), offset[b], offset[b] + buffer.bytes.value);
    }
    const std::uint64_t peak = peak_of(offset);
    if (peak < best_.peak.value) best_.offset = offset, best_.peak = {peak}, best_.how = "permutations";
  } while (!done() && std::next_permutation(order.begin(), order.end()));
  if (!capacity_) best_.bound = best_.peak;  // all were tried
}

// Buffers that live through all of the part's time lie at its bottom: in any plan they can be moved there without raising the peak.
// Without them, time may fall apart. Returns the parts that do not come apart any more.
std::vector<Planner::Part> Planner::parts_of(Part whole, std::vector<std::uint64_t>& offset) const {
  std::vector<Part> open, closed;
  open.push_back(std::move(whole));
  while (!open.empty()) {
    Part part = std::move(open.back());
    open.pop_back();
    std::sort(part.buffers.begin(), part.buffers.end(), [&](auto a, auto b) { return span_of(a) != span_of(b) ? span_of(a) < span_of(b) : a < b; });
    Sections all = span_of(part.buffers.front());
    for (const std::uint32_t b : part.buffers) all.end = std::max(all.end, span_of(b).end);
    std::vector<Part> pieces;
    std::uint32_t end = 0;
    std::uint64_t base = part.base;
    bool changed = false;
    for (const std::uint32_t b : part.buffers) {
      if (span_of(b) == all) offset[b] = base, base += bytes(b), changed = true;
    }
    for (const std::uint32_t b : part.buffers) {
      const Sections span = span_of(b);
      if (span == all) continue;
      if (pieces.empty() || span.begin >= end) pieces.push_back({{}, base});
      pieces.back().buffers.push_back(b);
      end = std::max(end, span.end);
    }
    changed = changed || pieces.size() > 1;
    for (Part& piece : pieces) (changed ? open : closed).push_back(std::move(piece));
  }
  return closed;
}

std::uint64_t Planner::top_of(const Part& part, const std::vector<std::uint64_t>& offset) const {
  std::uint64_t top = 0;
  for (const std::uint32_t b : part.buffers) top = std::max(top, offset[b] + bytes(b));
  return top;
}

void Planner::search() {
  Part whole;
  for (std::uint32_t b = 0; b < problem_.buffers.size(); ++b)
    if (!timeline_.of(b).empty() && problem_.buffers[b].bytes.value > 0) whole.buffers.push_back(b);
  std::vector<std::uint64_t> offset(problem_.buffers.size(), 0);
  const std::vector<Part> parts = parts_of(std::move(whole), offset);
  for (const Part& part : parts)
    if (part.buffers.size() > most_for_search) return;
  // The goal in rounded bytes: a plan's last byte may be the padding of its last buffer.
  std::uint64_t low = std::max(goal_, *std::max_element(load_.begin(), load_.end()));
  for (const Part& part : parts) low = std::max(low, search(part, low, offset));
  const std::uint64_t peak = peak_of(offset);
  if (peak < best_.peak.value) best_.offset = std::move(offset), best_.peak = {peak}, best_.how = "search";
}

// First fit above the part's base, in the order that ends lowest.
void Planner::stack(const Part& part, std::vector<std::uint64_t>& offset) const {
  std::vector<bool> mine(problem_.buffers.size(), false);
  for (const std::uint32_t b : part.buffers) mine[b] = true;
  std::uint64_t least = ~std::uint64_t{0};
  for (const Order order : every_order) {
    AddressTree tree(timeline_.count);
    const std::vector<Sections> all{{0, timeline_.count}};
    tree.insert(all, 0, part.base);
    std::vector<std::uint64_t> tried(offset);
    for (const std::uint32_t b : sorted(problem_, timeline_, load_, order)) {
      if (!mine[b]) continue;
      tried[b] = tree.first_fit(timeline_.of(b), {.bytes = bytes(b)});
      tree.insert(timeline_.of(b), tried[b], tried[b] + bytes(b));
    }
    const std::uint64_t top = top_of(part, tried);
    if (top < least) least = top, offset.swap(tried);
  }
}

// Offsets for one part, not higher than `enough` if that can be found. Returns their top.
std::uint64_t Planner::search(const Part& part, std::uint64_t enough, std::vector<std::uint64_t>& offset) {
  stack(part, offset);
  std::uint64_t low = enough, high = top_of(part, offset);
  if (high <= low) return high;
  Sections all = span_of(part.buffers.front());
  for (const std::uint32_t b : part.buffers) all = {std::min(all.begin, span_of(b).begin), std::max(all.end, span_of(b).end)};
  std::vector<Sections> life;
  std::vector<std::uint64_t> sizes;
  for (const std::uint32_t b : part.buffers) {
    life.push_back({span_of(b).begin - all.begin, span_of(b).end - all.begin});
    sizes.push_back(bytes(b));
  }
  ExactSearch search(all.end - all.begin, std::move(life), std::move(sizes));
  const std::uint64_t padding = problem_.buffers.front().alignment - 1;
  // The lowest capacity comes first and gets most of the effort: the tighter it is, the better the search prunes.
  for (std::uint64_t capacity = low; low < high && search.steps() < effort_.exact; capacity = low + (high - low) / 2) {
    const std::uint64_t left = effort_.exact - search.steps();
    const Found found = search.run(capacity - part.base, capacity_ ? left : std::max<std::uint64_t>(left / 2, 100'000));
    if (found == Found::offsets) {
      for (std::size_t i = 0; i < part.buffers.size(); ++i) offset[part.buffers[i]] = part.base + search.offsets()[i];
      high = top_of(part, offset);
    } else {
      low = capacity + 1;
      if (found == Found::proof_of_none && low > padding) best_.bound = std::max(best_.bound, Bytes{low - padding});
      if (capacity_) break;          // it was asked for this one
    }
  }
  effort_.exact -= std::min(effort_.exact, search.steps());
  return high;
}

}  // namespace

Layout plan_offsets(const Problem& problem, std::optional<Bytes> capacity, Effort effort) { return Planner(problem, capacity, effort).plan(); }

}  // namespace vedette::pack
