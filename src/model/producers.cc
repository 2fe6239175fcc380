// Chains of ops, from their first to the one that changed a tensor in place last.
#include "model/producers.h"

#include <algorithm>
#include <optional>

namespace vedette {
namespace {

constexpr std::size_t most_in_chain = 16;

bool has(const std::vector<TensorIndex>& sorted, TensorIndex t) {
  return std::binary_search(sorted.begin(), sorted.end(), t);
}

void unite(std::vector<TensorIndex>& all, const std::vector<TensorIndex>& more) {
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

class Chains {
 public:
  explicit Chains(const Trace& trace) : trace_(trace), written_by_(trace.tensors.size()) {}

  std::vector<Op> all() {
    std::vector<Op> made;
    for (std::uint32_t op = 0; op < trace_.ops.size(); ++op) {
      made.push_back(producer(op));
      for (const TensorIndex t : trace_.ops[op].writes) written_by_[t.value] = op;
    }
    return made;
  }

 private:
  struct Link {                                           // an op as one of a chain
    Op op;                                                // less the operands that it does not use when it is repeated
    std::vector<std::uint32_t> chain;                     // the ops that it takes to repeat it, itself last
    std::vector<std::optional<std::uint32_t>> read_from;  // of its reads, the writers
    bool works = false;
  };

  // Running statistics are an argument that a repetition does without.
  Op alone(const Op& traced) const {
    Op op = traced;
    if (!op.runs_again.value_or(false) || op.name.find("batch_norm") == std::string::npos) return op;
    const auto statistics = [&](TensorIndex t) {
      return trace_.tensors[t.value].persistent && has(traced.reads, t) && has(traced.writes, t);
    };
    std::erase_if(op.reads, statistics);
    std::erase_if(op.writes, statistics);
    return op;
  }

  Op producer(std::uint32_t number) {
    Link& link = links_.emplace_back();
    link.op = alone(trace_.ops[number]);
    for (const TensorIndex t : link.op.reads) link.read_from.push_back(written_by_[t.value]);
    bool in_place = false;
    link.works = true;
    for (const TensorIndex t : link.op.writes) {
      if (!has(link.op.reads, t)) continue;
      in_place = true;
      link.works = link.works && follow(link, t);
    }
    link.chain.push_back(number);
    if (!in_place) {
      link.works = replayable(link.op);
      return link.op;
    }
    link.works = link.works && link.op.runs_again.value_or(false) && link.chain.size() <= most_in_chain;
    std::optional<Op> merged = link.works ? merge(link.chain) : std::nullopt;
    link.works = merged.has_value();
    return merged ? *std::move(merged) : link.op;
  }

  // Before `link` runs the chain that made its changed tensor.
  bool follow(Link& link, TensorIndex t) const {
    const auto before = written_by_[t.value];
    if (!before || trace_.tensors[t.value].persistent || !links_[*before].works) return false;
    for (const std::uint32_t op : links_[*before].chain)
      if (std::find(link.chain.begin(), link.chain.end(), op) == link.chain.end()) link.chain.push_back(op);
    std::sort(link.chain.begin(), link.chain.end());
    return true;
  }

  // The chain as one op. nullopt: it reads a tensor that has been written since, or one that it writes itself.
  std::optional<Op> merge(const std::vector<std::uint32_t>& chain) const {
    Op all = links_[chain.back()].op;
    all.time = {}, all.workspace = {};
    all.reads.clear(), all.writes.clear();
    for (const std::uint32_t number : chain) {
      const Link& link = links_[number];
      all.time += link.op.time;
      all.workspace = std::max(all.workspace, link.op.workspace);
      unite(all.writes, link.op.writes);
      std::vector<TensorIndex> outside;
      for (std::size_t k = 0; k < link.op.reads.size(); ++k) {
        const auto from = link.read_from[k];
        if (from && std::binary_search(chain.begin(), chain.end(), *from)) continue;
        if (from != written_by_[link.op.reads[k].value]) return std::nullopt;
        outside.push_back(link.op.reads[k]);
      }
      unite(all.reads, outside);
    }
    const bool circle =
        std::any_of(all.writes.begin(), all.writes.end(), [&](TensorIndex t) { return has(all.reads, t); });
    return circle ? std::nullopt : std::optional(std::move(all));
  }

  const Trace& trace_;
  std::vector<std::optional<std::uint32_t>> written_by_;  // [tensor], before the op at hand
  std::vector<Link> links_;                               // [op]
};

}  // namespace

std::vector<Op> producers(const Trace& trace) { return Chains(trace).all(); }

}  // namespace vedette
