#include "profiler/execution_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace vedette::foreign {
namespace {

constexpr std::uint64_t largest_storage = std::uint64_t{1} << 48;
constexpr double assumed_bytes_per_ns = 100;  // 100 GB/s
constexpr std::size_t most_operators = 900'000;

std::uint64_t natural_number(const nlohmann::json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > largest_storage)
    throw Malformed{std::string(what) + " of a tensor is no number that can be"};
  return value.get<std::uint64_t>();
}

// [tensor, storage, offset, elements, bytes of one, device]
bool is_tensor(const nlohmann::json& value) {
  return value.is_array() && value.size() == 6 && value[5].is_string() &&
         std::all_of(value.begin(), value.begin() + 5, [](const auto& each) { return each.is_number_unsigned(); });
}

std::vector<std::int64_t> sizes_in(const nlohmann::json& list) {
  std::vector<std::int64_t> sizes;
  if (!list.is_array() || list.size() > 64) return {};
  for (const auto& each : list) {
    if (!each.is_number_integer()) return {};
    const auto size = each.get<std::int64_t>();
    if (size < 0 || size > static_cast<std::int64_t>(largest_storage)) return {};
    sizes.push_back(size);
  }
  return sizes;
}

StorageUse use_of(const nlohmann::json& value, const nlohmann::json* shape, const nlohmann::json* strides,
                  std::size_t argument) {
  StorageUse use{.tensor = natural_number(value[0], "the number"),
                 .storage = natural_number(value[1], "the storage"),
                 .argument = argument};
  const std::uint64_t offset = natural_number(value[2], "the offset"), each = natural_number(value[4], "the type");
  std::uint64_t elements = natural_number(value[3], "the size");
  if (shape != nullptr) use.shape = sizes_in(*shape);
  const std::vector<std::int64_t> steps = strides != nullptr ? sizes_in(*strides) : std::vector<std::int64_t>();
  if (elements > 0 && !use.shape.empty() && steps.size() == use.shape.size()) {
    use.exact = true;
    double reach = 1;  // elements of the storage
    for (std::size_t d = 0; d < steps.size(); ++d)
      reach += static_cast<double>(std::max<std::int64_t>(use.shape[d], 1) - 1) * static_cast<double>(steps[d]);
    if (!(reach <= static_cast<double>(largest_storage))) throw Malformed{"a tensor reaches too far"};
    elements = static_cast<std::uint64_t>(reach);
  }
  if (each > 16 || elements > largest_storage / 32 || offset > largest_storage / 32)
    throw Malformed{"a tensor has no size that can be"};
  use.bytes = elements == 0 ? 0 : (offset + elements) * each;
  return use;
}

const nlohmann::json* entry_of(const nlohmann::json* list, std::size_t index) {
  return list != nullptr && list->is_array() && index < list->size() ? &(*list)[index] : nullptr;
}

// Lists of tensors, three deep at most.
void collect(const nlohmann::json& value, const nlohmann::json* shape, const nlohmann::json* strides,
             std::size_t argument, int depth, std::vector<StorageUse>& found) {
  if (is_tensor(value)) {
    StorageUse use = use_of(value, shape, strides, argument);
    if (use.storage != 0 && use.bytes != 0) found.push_back(std::move(use));
  } else if (value.is_array() && depth > 0) {
    for (std::size_t i = 0; i < value.size(); ++i)
      if (value[i].is_array()) collect(value[i], entry_of(shape, i), entry_of(strides, i), argument, depth - 1, found);
  }
}

// Of "aten::add_.Tensor(Tensor(a!) self, Tensor other) -> ...": which arguments are changed.
std::vector<bool> changed_arguments(const std::string& schema) {
  std::vector<bool> changed;
  const std::size_t open = schema.find('('), arrow = schema.rfind("->");
  if (open == schema.npos) return changed;
  int depth = 0;
  for (std::size_t i = open; i < std::min(arrow, schema.size()); ++i) {
    const char c = schema[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (depth == 0) break;
    if (i == open) changed.push_back(false);
    if (c == ',' && depth == 1) changed.push_back(false);
    if (c == '!' && !changed.empty()) changed.back() = true;
  }
  return changed;
}

// In place by their schema, and no byte is touched.
bool only_renames(std::string_view name) {
  constexpr std::array<std::string_view, 8> renamers{"as_strided_", "resize_",  "detach_",    "t_",
                                                     "transpose_",  "squeeze_", "unsqueeze_", "requires_grad_"};
  return std::any_of(renamers.begin(), renamers.end(), [&](std::string_view each) {
    return name.ends_with(each) && (name.size() == each.size() || name[name.size() - each.size() - 1] == ':');
  });
}

bool is_operator(const ExecutionNode& node) {
  return !node.schema.empty() ||
         (node.name.find("::") != node.name.npos && node.name.find("autograd::") == node.name.npos);
}

// Where the nodes called by the marker end: at the first that its caller, or a caller of that, called next.
std::size_t end_of_section(const std::vector<ExecutionNode>& nodes, std::size_t marker) {
  std::size_t i = marker + 1;
  while (i < nodes.size() && (nodes[i].parent == 0 || nodes[i].parent >= nodes[marker].id)) ++i;
  return i;
}

struct Window {
  std::size_t begin = 0, end = 0;
  std::size_t step = 1, steps = 1;
};

// The last whole step: between ProfilerSteps, else between the ends of the optimizer's steps, else all.
Window window_of(const std::vector<ExecutionNode>& nodes) {
  std::vector<std::size_t> bounds, ends;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].name.starts_with("ProfilerStep")) bounds.push_back(i);
    if (nodes[i].name.starts_with("Optimizer.step")) ends.push_back(end_of_section(nodes, i));
  }
  if (bounds.empty() && ends.size() >= 2) bounds = std::move(ends);
  if (bounds.empty()) return {0, nodes.size()};
  if (bounds.size() == 1) return {bounds[0], nodes.size()};
  return {bounds[bounds.size() - 2], bounds.back(), bounds.size() - 1, bounds.size()};
}

class StepBuilder {
 public:
  StepBuilder(std::vector<ExecutionNode> nodes, std::string_view format) : nodes_(std::move(nodes)), format_(format) {
    std::stable_sort(nodes_.begin(), nodes_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  Trace build() {
    for (const ExecutionNode& node : nodes_) parent_of_[node.id] = node.parent;
    const Window window = window_of(nodes_);
    for (std::size_t i = window.begin; i < window.end; ++i) {
      const ExecutionNode& node = nodes_[i];
      follow_phase(i);
      if (node.on_device) {
        device_ns_ += static_cast<std::int64_t>(node.microseconds * 1000);
        if (const auto op = op_of_.find(node.parent); op != op_of_.end())
          draft_[op->second].device_us += node.microseconds;
      } else if (is_operator(node)) {
        take(node);
      } else {
        pending_us_ += node.microseconds;
      }
    }
    return finished(window);
  }

 private:
  struct Draft {  // an op
    const ExecutionNode* node = nullptr;
    Phase phase = Phase::forward;
    std::set<std::uint32_t> reads, writes;  // tensors
    double host_us = 0, device_us = 0;
  };
  struct Known {  // of a storage, its present life
    std::uint32_t tensor = 0;
    std::size_t maker = 0;
    bool fresh = false;  // made in this step, and nothing has read it
  };

  void follow_phase(std::size_t i) {
    const ExecutionNode& node = nodes_[i];
    if (i >= section_end_) phase_ = Phase::forward;
    const bool backward = node.name.starts_with("autograd::engine::evaluate_function");
    if (!backward && !node.name.starts_with("Optimizer.step")) return;
    if (phase_ != Phase::forward && i < section_end_) return;
    phase_ = backward ? Phase::backward : Phase::optimizer;
    section_end_ = end_of_section(nodes_, i);
  }

  std::uint32_t tensor_of(const StorageUse& use, bool persistent) {
    const auto number = static_cast<std::uint32_t>(trace_.tensors.size());
    trace_.tensors.push_back({.name = "storage " + std::to_string(use.storage),
                              .bytes = {use.bytes},
                              .kind = persistent ? TensorKind::input : TensorKind::activation,
                              .persistent = persistent,
                              .shape = use.shape});
    return number;
  }
  void grow(std::uint32_t tensor, const StorageUse& use) {
    Tensor& t = trace_.tensors[tensor];
    if (use.bytes <= t.bytes.value || (!use.exact && views_.contains(use.tensor))) return;
    t.bytes = {use.bytes};
    t.shape = use.shape;
  }

  void take(const ExecutionNode& node) {
    Draft draft{.node = &node, .phase = phase_, .host_us = node.microseconds};
    const std::unordered_set<std::uint64_t> taken = operands(node, draft);
    bool makes = false;
    for (const StorageUse& use : node.outputs) {
      const bool handed_on = taken.contains(use.storage);
      if (handed_on)
        views_.insert(use.tensor);
      else
        views_.erase(use.tensor);
      makes |= !handed_on;
    }
    if (!makes && draft.writes.empty()) {  // a view, or nothing
      pending_us_ += node.microseconds;
      return;
    }
    std::size_t owner = draft_.size();
    for (const StorageUse& use : node.outputs)
      if (!taken.contains(use.storage)) owner = std::min(owner, make(use, draft));
    for (const StorageUse& use : node.inputs) known_[use.storage].fresh = false;
    const bool again = !makes && !draft_.empty() && draft_.back().reads == draft.reads &&
                       draft_.back().writes == draft.writes;  // relu_ calls clamp_min_
    if (again) owner = draft_.size() - 1;
    if (draft.writes.empty() || again) {  // a part of what called it
      draft_[owner].host_us += node.microseconds;
      op_of_[node.id] = owner;
      return;
    }
    draft.host_us += pending_us_, pending_us_ = 0;
    if (draft_.size() >= most_operators) throw Malformed{"it has more than 900,000 operators; record fewer steps"};
    op_of_[node.id] = draft_.size();
    draft_.push_back(std::move(draft));
  }

  // Fills reads, and of the writes those to what it reads; the storages of both.
  std::unordered_set<std::uint64_t> operands(const ExecutionNode& node, Draft& draft) {
    const std::vector<bool> changed = changed_arguments(node.schema);
    const bool in_place = node.schema.empty() && node.name.ends_with('_'), by_name = only_renames(node.name);
    std::unordered_set<std::uint64_t> taken;
    for (const StorageUse& use : node.inputs) {
      taken.insert(use.storage);
      const auto [known, unseen] = known_.try_emplace(use.storage);
      if (unseen) known->second.tensor = tensor_of(use, true);
      grow(known->second.tensor, use);
      draft.reads.insert(known->second.tensor);
      const bool writes = in_place ? use.argument == 0 : use.argument < changed.size() && changed[use.argument];
      if (writes && !by_name) draft.writes.insert(known->second.tensor);
    }
    return taken;
  }

  // The draft makes this storage, unless it is a part of the op that does: which op does is the result.
  std::size_t make(const StorageUse& use, Draft& draft) {
    const auto [known, unseen] = known_.try_emplace(use.storage);
    Known& storage = known->second;
    if (unseen || !storage.fresh || storage.maker >= draft_.size() || !calls(draft_[storage.maker], draft)) {
      if (unseen || storage.maker != draft_.size() || !storage.fresh)
        storage = {.tensor = tensor_of(use, false), .maker = draft_.size(), .fresh = true};
      draft.writes.insert(storage.tensor);
      return draft_.size();
    }
    Draft& caller = draft_[storage.maker];
    const auto all_of = [](const std::set<std::uint32_t>& some, const std::set<std::uint32_t>& others) {
      return std::includes(others.begin(), others.end(), some.begin(), some.end());
    };
    const bool allocates = draft.node->name.find("::empty") != std::string::npos;
    if (allocates || (all_of(draft.reads, caller.reads) && draft.reads.size() < caller.reads.size()))
      return storage.maker;
    if (all_of(caller.reads, draft.reads)) caller.writes.erase(storage.tensor);  // which only handed it on
    storage.maker = draft_.size();
    grow(storage.tensor, use);
    draft.writes.insert(storage.tensor);
    return draft_.size();
  }

  // Where a parent is not told, as for most nodes of Chakra, it may be so.
  bool calls(const Draft& caller, const Draft& called) const {
    std::uint64_t node = called.node->id;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto parent = parent_of_.find(node);
      if (parent == parent_of_.end() || parent->second == 0) return true;
      if (parent->second == caller.node->id) return true;
      if (parent->second < caller.node->id) return false;
      node = parent->second;
    }
    return false;
  }

  Trace finished(const Window& window) {
    double host_us = 0, left_over = 0;
    for (const Draft& draft : draft_) host_us += draft.host_us;
    const bool by_device = device_ns_ > 0, timed = by_device || host_us > 0;
    for (Draft& draft : draft_) {
      const double us = by_device ? draft.device_us : draft.host_us;
      if (draft.writes.empty()) {  // all that it made was made by what it called
        left_over += us;
        continue;
      }
      add_op(draft, timed, us + left_over);
      left_over = 0;
    }
    if (trace_.ops.empty()) throw Malformed{"no operator in it uses a tensor"};
    name_tensors();
    trace_.name = "execution trace", trace_.source = format_, trace_.device = by_device ? "cuda" : "unknown";
    trace_.notes = {assumptions(window, timed)};
    return std::move(trace_);
  }

  void add_op(const Draft& draft, bool timed, double us) {
    Op op{.name = draft.node->name.empty() ? std::string("op") : draft.node->name, .phase = draft.phase};
    double bytes = 0;
    for (const std::uint32_t t : draft.reads) {
      op.reads.push_back({t});
      bytes += static_cast<double>(trace_.tensors[t].bytes.value);
    }
    for (const std::uint32_t t : draft.writes) {
      op.writes.push_back({t});
      bytes += static_cast<double>(trace_.tensors[t].bytes.value);
    }
    const double ns = timed ? us * 1000 : bytes / assumed_bytes_per_ns;
    constexpr double longest = 3.6e12;
    op.time = {1 + static_cast<std::int64_t>(std::isfinite(ns) ? std::clamp(ns, 0.0, longest) : 0.0)};
    trace_.ops.push_back(std::move(op));
  }

  // Tensors that no op uses any more are left out; the others get numbers without gaps.
  void name_tensors() {
    constexpr std::uint32_t unused = ~0u;
    std::vector<std::uint32_t> number(trace_.tensors.size(), unused);
    std::vector<bool> written(trace_.tensors.size());
    for (const Op& op : trace_.ops) {
      for (const auto* list : {&op.reads, &op.writes})
        for (const TensorIndex t : *list) number[t.value] = 0;
      for (const TensorIndex t : op.writes) written[t.value] = true;
    }
    std::vector<Tensor> kept;
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < number.size(); ++t) {
      if (number[t] == unused) continue;
      number[t] = static_cast<std::uint32_t>(kept.size());
      kept.push_back(std::move(trace_.tensors[t]));
      if (kept.back().persistent && written[t]) kept.back().kind = TensorKind::weight;
      if (sum += kept.back().bytes.value; sum > std::uint64_t{1} << 60) throw Malformed{"its tensors are too large"};
    }
    trace_.tensors = std::move(kept);
    for (Op& op : trace_.ops)
      for (auto* list : {&op.reads, &op.writes})
        for (TensorIndex& t : *list) t = {number[t.value]};
  }

  std::string assumptions(const Window& window, bool timed) const {
    std::string note = format_ == chakra_format ? "A Chakra trace" : "An execution trace";
    note += timed
                ? " tells no lives: assumed is that a tensor lives until its last use"
                : " tells neither times nor lives: assumed is that an operator takes as long as its bytes at 100 GB/s, "
                  "and that a tensor lives until its last use";
    if (window.steps > 1)
      note += "; step " + std::to_string(window.step) + " of " + std::to_string(window.steps) + " is taken";
    return note + ".";
  }

  std::vector<ExecutionNode> nodes_;
  std::string_view format_;
  Trace trace_;
  std::vector<Draft> draft_;
  std::unordered_map<std::uint64_t, Known> known_;
  std::unordered_map<std::uint64_t, std::size_t> op_of_;  // of nodes that became ops, or parts of them
  std::unordered_map<std::uint64_t, std::uint64_t> parent_of_;
  std::unordered_set<std::uint64_t> views_;  // tensors that an operator handed on
  Phase phase_ = Phase::forward;
  std::size_t section_end_ = 0;
  double pending_us_ = 0;  // of nodes that are no ops
  std::int64_t device_ns_ = 0;
};

}  // namespace

std::vector<StorageUse> storage_uses(const nlohmann::json& values, const nlohmann::json& shapes,
                                     const nlohmann::json& strides) {
  std::vector<StorageUse> found;
  if (!values.is_array()) return found;
  for (std::size_t i = 0; i < values.size(); ++i)
    collect(values[i], entry_of(&shapes, i), entry_of(&strides, i), i, 3, found);
  return found;
}

Trace trace_of_nodes(std::vector<ExecutionNode> nodes, std::string_view format) {
  return StepBuilder(std::move(nodes), format).build();
}

}  // namespace vedette::foreign
