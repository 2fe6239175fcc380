// Lifetimes, layers and transfer times.
#include "policy/sentinel/facts.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "model/liveness.h"

namespace vedette::sentinel {
namespace {

bool same_layer(const Op& a, const Op& b) { return a.layer == b.layer && a.phase == b.phase; }

std::vector<std::uint64_t> cut_layers(const Trace& trace, std::uint32_t ops_per_group) {
  std::vector<std::uint64_t> begins;
  for (std::uint64_t i = 0; i < trace.ops.size(); ++i) {
    const bool fresh = i == 0 || !same_layer(trace.ops[i - 1], trace.ops[i]);
    if (fresh || (ops_per_group > 0 && i - begins.back() >= ops_per_group)) begins.push_back(i);
  }
  begins.push_back(trace.ops.size());
  return begins;
}

std::vector<std::int64_t> times(const Trace& trace, const Link* link) {
  std::vector<std::int64_t> ns(trace.tensors.size());
  for (std::size_t t = 0; link != nullptr && t < ns.size(); ++t)
    ns[t] = (link->latency + transfer_time(trace.tensors[t].bytes, link->bytes_per_s)).value;
  return ns;
}

}  // namespace

Facts::Facts(const Trace& trace, const Machine& machine, TierIndex slow) : lives(vedette::lives(trace)), trace_(trace) {
  for (const Tensor& tensor : trace.tensors) sizes.push_back(round_up(tensor.bytes.value, machine.granule.value));
  const Link* in = machine.link(slow, {0});
  const Link* out = machine.link({0}, slow);
  in_ns = times(trace, in);
  out_ns = times(trace, out);
  began.assign(trace.ops.size() + 1, 0);
  for (std::size_t i = 0; i < trace.ops.size(); ++i) began[i + 1] = began[i] + trace.ops[i].time.value;
  const std::vector<std::vector<OpIndex>> all = vedette::uses(trace);
  first_use_.push_back(0);
  for (std::uint32_t t = 0; t < all.size(); ++t) {
    for (const OpIndex op : all[t]) {
      const std::vector<TensorIndex>& writes = trace.ops[op.value].writes;
      uses_.push_back(op.value);
      changes_.push_back(std::find(writes.begin(), writes.end(), TensorIndex{t}) != writes.end());
    }
    first_use_.push_back(static_cast<std::uint32_t>(uses_.size()));
  }
}

const Layered& Facts::layered(std::uint32_t ops_per_group) {
  const auto [found, fresh] = layered_.try_emplace(ops_per_group);
  Layered& made = found->second;
  if (!fresh) return made;
  const std::size_t n = trace_.ops.size();
  made.begins = cut_layers(trace_, ops_per_group);
  std::vector<std::size_t> layer_of(n);
  for (std::size_t k = 0; k + 1 < made.begins.size(); ++k) {
    for (std::size_t i = made.begins[k]; i < made.begins[k + 1]; ++i) layer_of[i] = k;
  }
  made.brief_lived.resize(trace_.tensors.size());
  made.brief.assign(n + 1, 0);
  for (std::size_t t = 0; t < trace_.tensors.size(); ++t) {
    const Span<OpIndex> life = lives[t];
    if (trace_.tensors[t].persistent || life.begin >= life.end ||
        layer_of[life.begin.value] != layer_of[life.end.value - 1])
      continue;
    made.brief_lived[t] = 1;
    made.brief[life.begin.value] += sizes[t];
    made.brief[life.end.value] -= sizes[t];  // unsigned: the running sum is whole again
  }
  std::uint64_t living = 0;
  for (std::size_t i = 0; i < n; ++i) made.brief[i] = (living += made.brief[i]) + trace_.ops[i].workspace.value;
  made.brief.resize(n);
  return made;
}

std::uint32_t layer_count(const Trace& trace) { return static_cast<std::uint32_t>(cut_layers(trace, 0).size() - 1); }

std::uint32_t longest_layer(const Trace& trace) {
  const std::vector<std::uint64_t> begins = cut_layers(trace, 0);
  std::uint64_t longest = 1;
  for (std::size_t k = 0; k + 1 < begins.size(); ++k) longest = std::max(longest, begins[k + 1] - begins[k]);
  return static_cast<std::uint32_t>(longest);
}

std::pair<Bytes, OpIndex> smallest_fast_tier(const Trace& trace, Bytes granule) {
  std::pair<Bytes, OpIndex> largest;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    Bytes sum = trace.ops[i].workspace;
    for (TensorIndex t : operands(trace.ops[i]))
      sum += Bytes{round_up(trace.tensors[t.value].bytes.value, granule.value)};
    if (sum > largest.first) largest = {sum, {i}};
  }
  return largest;
}

}  // namespace vedette::sentinel
