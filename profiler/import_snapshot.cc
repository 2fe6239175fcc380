// Pickles of torch.cuda.memory._snapshot() (torch 2.15, torch/cuda/_memory_viz.py names the fields). An event of the
// allocator is an op: a block is written where it is allocated, and read where it is freed.
//
// Blocks that live when the history begins are found at its end: those that are active there, and those that are freed
// and never allocated. The first are persistent tensors; each of the others is born in an op of its own, before all.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "profiler/foreign.h"
#include "profiler/pickle_reader.h"

namespace vedette::foreign {
namespace {

using Ref = PickledValues::Ref;

constexpr std::size_t most_events = 900'000, most_ops = 1'000'000;
constexpr std::int64_t largest_block = std::int64_t{1} << 42, largest_sum = std::int64_t{1} << 60;

struct BlockEvent {
  bool birth = false;
  std::int64_t address = 0, bytes = 0, when_us = 0;
  std::string name;
};

class SnapshotReader {
 public:
  explicit SnapshotReader(const PickledValues& values) : values_(values) {}

  Trace read() {
    const auto traces = list(values_.top(), "device_traces");
    if (!traces) throw Malformed{"it has no 'device_traces': it is no result of torch.cuda.memory._snapshot()"};
    std::int64_t most = 0;
    for (std::size_t device = 0; device < traces->size(); ++device) {
      look();
      std::vector<BlockEvent> events = events_of((*traces)[device]);
      const std::int64_t rise = rise_of(events);
      if (rise <= most) continue;
      most = rise, device_ = device, events_ = std::move(events);
    }
    if (most == 0)
      throw Malformed{
          "it has no history of allocations; call torch.cuda.memory._record_memory_history() before the step"};
    devices_ = traces->size();
    return trace_of_events();
  }

 private:
  std::optional<std::span<const Ref>> list(Ref dict, std::string_view key) const {
    const auto found = values_.at(dict, key);
    if (!found || values_.kind(*found) != PickledValues::Kind::list) return std::nullopt;
    return values_.items(*found);
  }
  std::optional<std::int64_t> integer(Ref dict, std::string_view key) const {
    const auto found = values_.at(dict, key);
    return found ? values_.integer(*found) : std::nullopt;
  }
  std::string_view text(Ref dict, std::string_view key) const {
    const auto found = values_.at(dict, key);
    return found ? values_.text(*found) : std::string_view();
  }

  // Of a list's elements: a pickle may name one list in thousands of places.
  void look() const {
    constexpr std::uint64_t most = 50'000'000;
    if (++looked_at_ > most)
      throw Malformed{"it has more than 50,000,000 events, frames and blocks; record fewer steps"};
  }

  // The innermost frame of the program's own Python, else of any.
  std::string name_of(Ref event) const {
    std::string_view chosen;
    const std::span<const Ref> frames = list(event, "frames").value_or(std::span<const Ref>());
    for (const Ref frame : frames) {
      look();
      const std::string_view name = text(frame, "name"), file = text(frame, "filename");
      if (chosen.empty()) chosen = name;
      if (!file.ends_with(".py") || file.find("/torch/") != file.npos) continue;
      if (!name.empty()) return std::string(name.substr(0, 200));
    }
    return chosen.empty() ? "block" : std::string(chosen.substr(0, 200));
  }

  std::vector<BlockEvent> events_of(Ref trace) const {
    if (values_.kind(trace) != PickledValues::Kind::list) throw Malformed{"a device's history is no list"};
    std::vector<BlockEvent> events;
    for (const Ref each : values_.items(trace)) {
      look();
      const std::string_view action = text(each, "action");
      if (action != "alloc" && action != "free_completed") continue;
      const auto address = integer(each, "addr"), bytes = integer(each, "size");
      const std::string place = "event " + std::to_string(events.size());
      if (!address || !bytes || *bytes < 0 || *bytes > largest_block)
        throw Malformed{place + " has no address or no size"};
      if (*bytes == 0) continue;
      if (events.size() >= most_events)
        throw Malformed{"it has more than 900,000 events; record fewer steps, or with a smaller max_entries"};
      events.push_back({.birth = action == "alloc",
                        .address = *address,
                        .bytes = *bytes,
                        .when_us = integer(each, "time_us").value_or(0),
                        .name = action == "alloc" ? name_of(each) : std::string()});
    }
    return events;
  }

  // Above what lived before: enough to tell the device that the program uses from one that it does not.
  static std::int64_t rise_of(const std::vector<BlockEvent>& events) {
    std::int64_t now = 0, most = 0;
    for (const BlockEvent& e : events) {
      now += e.birth ? std::min(e.bytes, largest_sum - now) : -e.bytes;
      most = std::max(most, now);
    }
    return most;
  }

  TensorIndex tensor(std::string name, std::int64_t bytes, bool persistent) {
    trace_.tensors.push_back({.name = std::move(name),
                              .bytes = {static_cast<std::uint64_t>(bytes)},
                              .kind = persistent ? TensorKind::weight : TensorKind::activation,
                              .persistent = persistent});
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }

  // Blocks that are active at the end, by address.
  std::map<std::int64_t, std::int64_t> active_blocks() const {
    std::map<std::int64_t, std::int64_t> active;
    const std::span<const Ref> segments = list(values_.top(), "segments").value_or(std::span<const Ref>());
    for (const Ref segment : segments) {
      look();
      if (integer(segment, "device").value_or(0) != static_cast<std::int64_t>(device_)) continue;
      std::int64_t next = integer(segment, "address").value_or(0);
      const std::span<const Ref> blocks = list(segment, "blocks").value_or(std::span<const Ref>());
      for (const Ref block : blocks) {
        look();
        const std::int64_t bytes = integer(block, "size").value_or(0);
        const std::int64_t address = integer(block, "address").value_or(next);
        if (bytes < 0 || bytes > largest_block || address > INT64_MAX - largest_block)
          throw Malformed{"a block has no size"};
        // events tell what was asked for, blocks are rounded up
        const std::int64_t asked = integer(block, "requested_size").value_or(bytes);
        if (bytes > 0 && text(block, "state") == "active_allocated")
          active[address] = asked > 0 && asked <= bytes ? asked : bytes;
        next = address + bytes;
      }
    }
    return active;
  }

  void add_op(std::string name, std::int64_t us) {
    constexpr std::int64_t longest = 3'600'000'000;  // an hour between two events: the clock was set
    trace_.ops.push_back({.name = std::move(name), .time = {std::clamp<std::int64_t>(us, 0, longest) * 1000 + 1}});
  }

  // Of each event its tensor. A free that nothing preceded makes one that was born before.
  std::vector<TensorIndex> tensors_of_events() {
    std::vector<TensorIndex> found;
    std::unordered_map<std::int64_t, TensorIndex> live;
    for (const BlockEvent& event : events_) {
      const auto known = live.find(event.address);
      if (event.birth) {
        found.push_back(tensor(event.name, event.bytes, false));
        live.insert_or_assign(event.address, found.back());
      } else if (known != live.end()) {
        found.push_back(known->second);
        live.erase(known);
      } else {
        found.push_back(tensor("from before", event.bytes, false));
        add_op("before the history", 0);
        trace_.ops.back().writes = {found.back()};
      }
    }
    for (const auto& [address, bytes] : active_blocks())
      if (!live.contains(address)) tensor("from before", bytes, true);
    for (const auto& [address, index] : live) last_.push_back(index);
    std::uint64_t sum = 0;
    for (const Tensor& t : trace_.tensors)
      if (sum += t.bytes.value; sum > static_cast<std::uint64_t>(largest_sum))
        throw Malformed{"its blocks are too large"};
    return found;
  }

  Trace trace_of_events() {
    const std::vector<TensorIndex> tensors = tensors_of_events();
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const BlockEvent& event = events_[i];
      const std::int64_t next = i + 1 < events_.size() ? events_[i + 1].when_us : event.when_us;
      const std::int64_t time = next > event.when_us && event.when_us >= 0 ? next - event.when_us : 0;
      add_op((event.birth ? "alloc " : "free ") + trace_.tensors[tensors[i].value].name, time);
      if (event.birth) {
        trace_.ops.back().writes = {tensors[i]};
      } else {
        trace_.ops.back().reads = trace_.ops.back().frees = {tensors[i]};
      }
    }
    if (trace_.ops.size() > most_ops) throw Malformed{"it has more than 1,000,000 events; record fewer steps"};
    std::vector<TensorIndex>& frees = trace_.ops.back().frees;
    frees.insert(frees.end(), last_.begin(), last_.end());
    std::sort(frees.begin(), frees.end());
    trace_.name = "memory snapshot", trace_.source = memory_snapshot_format, trace_.device = "cuda";
    trace_.notes = {
        "A memory snapshot tells sizes and lives and not uses: assumed is that a block is used when it is "
        "allocated and when it is freed" +
        (devices_ > 1 ? "; device " + std::to_string(device_) + " of " + std::to_string(devices_) : "") + "."};
    return std::move(trace_);
  }

  const PickledValues& values_;
  mutable std::uint64_t looked_at_ = 0;
  std::vector<BlockEvent> events_;
  std::size_t device_ = 0, devices_ = 1;
  Trace trace_;
  std::vector<TensorIndex> last_;  // they outlive the history
};

}  // namespace

Trace read_memory_snapshot(std::string_view pickle) {
  const auto values = PickledValues::read(pickle);
  if (!values) throw Malformed{values.error().message};
  return SnapshotReader(*values).read();
}

}  // namespace vedette::foreign
