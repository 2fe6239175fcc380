// DeepUM: Jung, Kim, Lee, "DeepUM: Tensor Migration and Prefetching in Unified Memory", ASPLOS'23. The text was not at
// hand: structure and constants are from memory.
//
// Kept: nothing is planned; launches are learnt. An execution ID names a launch; one table tells which launch followed
//   the last three, and each launch has a table of blocks: which block faulted after which (2048 rows, 2 ways, 4
//   successors, the latest first), with the block that faulted first. The chain of a launch's blocks goes on with the
//   predicted next launch, up to 32 launches ahead, and is fetched in that order. Room for it is made ahead of faults,
//   the least recently migrated first, sparing predictions for those launches. Dead blocks leave without being
//   written.
// Changed: blocks of 2 MiB move as their tensor does, so a table holds tensors. A launch is named by its operands and
//   workspace, since names prove nothing. Four steps are played to fill the tables (the paper's fill while training);
//   the plan has the moves of a fifth. A miss is fetched by the op that meets it.
// G10's artifact has another DeepUM, which knows the next eight ops instead of learning them: unified_memory.cc.
//
// Cost of prepare: O(steps * (ops * degree * blocks of a launch + evictions * resident tensors)).
#include <algorithm>
#include <array>
#include <map>

#include "policy/canvas/ledger_policy.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

// Of one launch: which block followed which. A set-associative table, the latest first in each set.
class BlockTable {
 public:
  void missed(std::uint32_t block) {
    if (last_ == none) {
      first_ = block;
    } else if (last_ != block) {
      remember(last_, block);
    }
    last_ = block;
  }
  void ended() { last_ = none; }

  // The chain from the first block on, each once.
  void chain(std::vector<std::uint32_t>& into) const {
    if (first_ == none) return;
    const std::size_t begin = into.size();
    into.push_back(first_);
    for (std::size_t at = begin; at < into.size() && into.size() - begin < longest; ++at) {
      const auto row = rows_.find(into[at] % row_count);
      if (row == rows_.end()) continue;
      for (const Entry& entry : row->second) {
        if (entry.block != into[at]) continue;
        for (const std::uint32_t next : entry.successors) {
          if (std::find(into.begin() + static_cast<std::ptrdiff_t>(begin), into.end(), next) == into.end())
            into.push_back(next);
        }
      }
    }
  }

 private:
  static constexpr std::uint32_t none = ~0U, row_count = 2048;
  static constexpr std::size_t ways = 2, most_successors = 4, longest = 256;
  struct Entry {
    std::uint32_t block;
    std::vector<std::uint32_t> successors;
  };

  void remember(std::uint32_t block, std::uint32_t next) {
    std::vector<Entry>& row = rows_[block % row_count];
    auto found = std::find_if(row.begin(), row.end(), [&](const Entry& entry) { return entry.block == block; });
    if (found == row.end()) found = row.insert(row.begin(), {.block = block});
    std::rotate(row.begin(), found, found + 1);
    if (row.size() > ways) row.pop_back();
    std::vector<std::uint32_t>& successors = row.front().successors;
    const auto known = std::find(successors.begin(), successors.end(), next);
    if (known != successors.end()) successors.erase(known);
    successors.insert(successors.begin(), next);
    if (successors.size() > most_successors) successors.pop_back();
  }

  std::uint32_t first_ = none, last_ = none;
  std::map<std::uint32_t, std::vector<Entry>> rows_;
};

class DeepUm final : public OnlineRules {
 public:
  explicit DeepUm(const Ledger& ledger) : predicted_at_(ledger.trace().tensors.size()) {
    std::map<std::vector<std::uint64_t>, std::uint32_t> names;
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      std::vector<std::uint64_t> launch = {ledger.trace().ops[i].workspace.value};
      launch.insert(launch.end(), ledger.uses().operands[i].begin(), ledger.uses().operands[i].end());
      id_.push_back(names.try_emplace(std::move(launch), static_cast<std::uint32_t>(names.size())).first->second);
    }
    tables_.resize(names.size());
  }

  void begins(Residence& residence, std::uint32_t now) override {
    const std::uint32_t id = id_[now % residence.ledger().ops()];
    followed_[history_] = id;
    history_ = {history_[1], history_[2], id};
    predict(now);
  }
  void misses(Residence& residence, std::uint32_t now, std::uint32_t tensor) override {
    tables_[id_[now % residence.ledger().ops()]].missed(tensor);
  }
  double worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) override {
    return residence.arrived(tensor);
  }
  // Predicted tensors leave only where an op could not run otherwise.
  bool spared(std::uint32_t now, std::uint32_t tensor) const override { return predicted_at_[tensor] == now; }
  void ready(Residence& residence, std::uint32_t) override {
    for (const std::uint32_t t : predicted_) {
      if (!residence.alive(t) || residence.near(t)) continue;
      if (!residence.make_room(static_cast<std::int64_t>(residence.ledger().size(t)), Residence::all_but_spared) ||
          !residence.fetch(t))
        break;
    }
  }
  void ended(Residence& residence, std::uint32_t now) override { tables_[id_[now % residence.ledger().ops()]].ended(); }

 private:
  static constexpr std::uint32_t degree = 32;
  using History = std::array<std::uint32_t, 3>;

  void predict(std::uint32_t now) {
    predicted_.clear();
    History seen = history_;
    for (std::uint32_t ahead = 0; ahead <= degree; ++ahead) {
      tables_[seen[2]].chain(predicted_);
      const auto next = followed_.find(seen);
      if (next == followed_.end()) break;
      seen = {seen[1], seen[2], next->second};
    }
    for (const std::uint32_t t : predicted_) predicted_at_[t] = now;
  }

  std::vector<std::uint32_t> id_;   // [op]: its execution ID
  std::vector<BlockTable> tables_;  // [execution ID]
  std::map<History, std::uint32_t> followed_;
  History history_{};
  // in order of use; [tensor]: the op for which it was predicted last
  std::vector<std::uint32_t> predicted_, predicted_at_;
};

}  // namespace

std::unique_ptr<Policy> make_deepum(std::uint64_t) { return std::make_unique<OnlinePolicy<DeepUm>>("deepum", 5); }

}  // namespace vedette
