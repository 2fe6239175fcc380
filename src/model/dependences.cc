// Dependences by one pass over the accesses: of each tensor the last writer, and its readers since.
#include "model/dependences.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

namespace vedette {
namespace {

std::string in_small_letters(const Op& op) {
  std::string name = op.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return name;
}

bool is_view(std::string_view name) {
  constexpr std::array<std::string_view, 24> views{
      "view",     "t",     "slice",  "split",  "as_strided", "expand",       "transpose",      "permute",
      "select",   "chunk", "narrow", "unbind", "unsqueeze",  "squeeze",      "detach",         "alias",
      "diagonal", "real",  "imag",   "unfold", "view_as",    "_unsafe_view", "_reshape_alias", "split_with_sizes"};
  if (const auto space = name.rfind("::"); space != std::string_view::npos) name.remove_prefix(space + 2);
  return std::find(views.begin(), views.end(), name.substr(0, name.find('.'))) != views.end();
}

}  // namespace

bool has_hidden_state(const Op& op) {
  const std::string name = in_small_letters(op);
  // "droupout" is how PyTorch 1.7 spells one of its operators.
  for (const char* word :
       {"dropout", "droupout", "cudnn_batch_norm", "native_batch_norm", "bernoulli", "rand", "uniform", "normal_"}) {
    if (name.find(word) != std::string::npos && name.find("backward") == std::string::npos) return true;
  }
  return false;
}

Turn turn_of(const Op& op) {
  const std::string name = in_small_letters(op);
  if (op.writes.empty()) return is_view(name) ? Turn::free : Turn::fence;
  if (has_hidden_state(op) || op.runs_again == false) return Turn::in_turn;
  for (const char* word : {"multinomial", "exponential_", "poisson", "geometric_", "cauchy_", "nccl", "c10d", "reduce_",
                           "allreduce", "all_gather", "allgather", "all_to_all", "broadcast_", "barrier"}) {
    if (name.find(word) != std::string::npos) return Turn::in_turn;
  }
  return Turn::free;
}

std::vector<std::vector<OpIndex>> dependences(const Trace& trace) {
  struct Accessed {
    std::optional<OpIndex> written;
    std::vector<OpIndex> since;  // read or freed
  };
  std::vector<Accessed> of(trace.tensors.size());
  std::optional<OpIndex> in_turn, fence;
  std::vector<std::vector<OpIndex>> before(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const auto follow = [&](std::optional<OpIndex> other) {
      if (other && other->value != i) before[i].push_back(*other);
    };
    for (const auto* list : {&op.reads, &op.frees}) {
      for (const TensorIndex t : *list) {
        follow(of[t.value].written);
        of[t.value].since.push_back({i});
      }
    }
    for (const TensorIndex t : op.writes) {
      follow(of[t.value].written);
      for (const OpIndex reader : of[t.value].since) follow(reader);
      of[t.value] = {.written = OpIndex{i}};
    }
    follow(fence);
    const Turn turn = turn_of(op);
    if (turn == Turn::in_turn) follow(std::exchange(in_turn, OpIndex{i}));
    if (turn == Turn::fence) {
      for (std::uint32_t other = fence ? fence->value + 1 : 0; other < i; ++other) follow(OpIndex{other});
      fence = OpIndex{i};
    }
    std::sort(before[i].begin(), before[i].end());
    before[i].erase(std::unique(before[i].begin(), before[i].end()), before[i].end());
  }
  return before;
}

std::optional<std::string> misplaced(const Trace& trace, std::span<const OpIndex> order) {
  std::vector<std::optional<std::size_t>> place(trace.ops.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i].value < place.size()) place[order[i].value] = i;
  }
  if (order.size() != place.size() || std::find(place.begin(), place.end(), std::nullopt) != place.end())
    return "the order does not name each op once";
  const auto before = dependences(trace);
  for (std::size_t later = 0; later < before.size(); ++later) {
    for (const OpIndex earlier : before[later]) {
      if (*place[earlier.value] > *place[later])
        return "op " + std::to_string(later) + " is placed before op " + std::to_string(earlier.value) +
               ", which it has to follow";
    }
  }
  return std::nullopt;
}

Trace reordered(const Trace& trace, std::span<const OpIndex> order) {
  Trace made = trace;
  std::vector<std::uint32_t> place(order.size());
  std::vector<bool> freed(trace.tensors.size());
  std::vector<std::uint32_t> last(trace.tensors.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const Op& op = trace.ops[order[i].value];
    place[order[i].value] = i;
    made.ops[i] = op;
    made.ops[i].frees.clear();
    for (const auto* list : {&op.reads, &op.writes, &op.frees}) {
      for (const TensorIndex t : *list) last[t.value] = i;
    }
    for (const TensorIndex t : op.frees) freed[t.value] = true;
  }
  for (std::uint32_t t = 0; t < freed.size(); ++t) {
    if (freed[t]) made.ops[last[t]].frees.push_back({t});
  }
  for (PageAccess& access : made.pages) access.op = {place[access.op.value]};
  const auto key = [](const PageAccess& a) { return std::tuple(a.op, a.tensor, a.pages.begin, a.pages.end); };
  std::stable_sort(made.pages.begin(), made.pages.end(),
                   [&](const PageAccess& a, const PageAccess& b) { return key(a) < key(b); });
  return made;
}

}  // namespace vedette
