#include "os/devices.h"

#include <hwloc.h>
#include <hwloc/memattrs.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

namespace vedette {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&::hwloc_topology_destroy)>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&::hwloc_bitmap_free)>;

// How many of a list such as "0-3,8"; nullopt: there is no such file.
std::optional<std::uint32_t> count_listed(const std::string& path) {
  std::ifstream file(path);
  std::string list;
  if (!std::getline(file, list)) return file.is_open() ? std::optional<std::uint32_t>(0) : std::nullopt;
  const Bitmap set(::hwloc_bitmap_alloc(), &::hwloc_bitmap_free);
  if (list.empty() || ::hwloc_bitmap_list_sscanf(set.get(), list.c_str()) != 0) return 0;
  return static_cast<std::uint32_t>(std::max(0, ::hwloc_bitmap_weight(set.get())));
}

// Where firmware describes memory, hwloc gives a node without processors those that are nearest to it. Of the machine
// itself the kernel knows better; of a described one the node that comes first has them.
std::uint32_t own_processors(hwloc_topology_t topology, hwloc_obj_t node, hwloc_bitmap_t taken) {
  if (node->cpuset == nullptr) return 0;
  const Bitmap own(::hwloc_bitmap_alloc(), &::hwloc_bitmap_free);
  ::hwloc_bitmap_andnot(own.get(), node->cpuset, taken);
  ::hwloc_bitmap_or(taken, taken, node->cpuset);
  if (::hwloc_topology_is_thissystem(topology) != 0) {
    const auto listed = count_listed("/sys/devices/system/node/node" + std::to_string(node->os_index) + "/cpulist");
    if (listed) return *listed;
  }
  return static_cast<std::uint32_t>(std::max(0, ::hwloc_bitmap_weight(own.get())));
}

// Seen by the processors that are nearest; 0: not told.
std::uint64_t attribute(hwloc_topology_t topology, hwloc_obj_t node, std::initializer_list<hwloc_memattr_id_e> names) {
  for (const hwloc_memattr_id_e name : names) {
    hwloc_location from{};
    hwloc_uint64_t value = 0;
    if (::hwloc_memattr_get_best_initiator(topology, name, node, 0, &from, &value) == 0) return value;
  }
  return 0;
}

NumaNode describe(hwloc_topology_t topology, hwloc_obj_t node, hwloc_bitmap_t taken) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  const std::uint64_t bandwidth =
      attribute(topology, node, {HWLOC_MEMATTR_ID_READ_BANDWIDTH, HWLOC_MEMATTR_ID_BANDWIDTH});
  const std::uint64_t latency = attribute(topology, node, {HWLOC_MEMATTR_ID_READ_LATENCY, HWLOC_MEMATTR_ID_LATENCY});
  return {.number = node->os_index,
          .processors = own_processors(topology, node, taken),
          .memory = {node->attr->numanode.local_memory},
          .type = node->subtype == nullptr ? "" : node->subtype,
          .bytes_per_s = bandwidth * mib,
          .latency = {static_cast<std::int64_t>(latency)},
          .kind = 0,
          .described = ::hwloc_topology_is_thissystem(topology) == 0};
}

// Figures of one kind of memory differ a little from socket to socket.
bool alike(std::uint64_t a, std::uint64_t b) noexcept { return std::max(a, b) - std::min(a, b) <= std::max(a, b) / 8; }

bool one_kind(const NumaNode& a, const NumaNode& b) noexcept {
  return (a.processors > 0) == (b.processors > 0) && a.type == b.type && alike(a.bytes_per_s, b.bytes_per_s) &&
         alike(static_cast<std::uint64_t>(a.latency.value), static_cast<std::uint64_t>(b.latency.value));
}

// The order of kinds where figures are told is theirs. Else HBM is faster than what processors have beside it, and that
// is faster than what stands alone.
bool faster(const NumaNode& a, const NumaNode& b) noexcept {
  if (a.bytes_per_s > 0 && b.bytes_per_s > 0) return a.bytes_per_s > b.bytes_per_s;
  const auto rank = [](const NumaNode& node) {
    return std::tuple(node.type == "HBM" || node.type == "MCDRAM" ? 0 : node.processors > 0 ? 1 : 2);
  };
  return rank(a) < rank(b);
}

}  // namespace

void find_kinds(std::vector<NumaNode>& nodes) {
  std::vector<const NumaNode*> kinds;  // one of each
  for (const NumaNode& node : nodes)
    if (std::none_of(kinds.begin(), kinds.end(), [&](const NumaNode* kind) { return one_kind(*kind, node); }))
      kinds.push_back(&node);
  std::stable_sort(kinds.begin(), kinds.end(), [](const NumaNode* a, const NumaNode* b) { return faster(*a, *b); });
  for (NumaNode& node : nodes) {
    const auto of =
        std::find_if(kinds.begin(), kinds.end(), [&](const NumaNode* kind) { return one_kind(*kind, node); });
    node.kind = static_cast<std::uint32_t>(of - kinds.begin());
  }
}

std::vector<NumaNode> find_numa_nodes() {
  std::vector<NumaNode> nodes;
  hwloc_topology_t made = nullptr;
  if (::hwloc_topology_init(&made) != 0) return nodes;
  const Topology topology(made, &::hwloc_topology_destroy);
  ::hwloc_topology_set_all_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (::hwloc_topology_load(topology.get()) != 0) return nodes;
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t node = nullptr;
       (node = ::hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    found.push_back(node);
  std::sort(found.begin(), found.end(), [](hwloc_obj_t a, hwloc_obj_t b) { return a->os_index < b->os_index; });
  const Bitmap taken(::hwloc_bitmap_alloc(), &::hwloc_bitmap_free);
  for (const hwloc_obj_t node : found) nodes.push_back(describe(topology.get(), node, taken.get()));
  find_kinds(nodes);
  return nodes;
}

Result<NodeIndex> node_named(std::string_view text, const std::vector<NumaNode>& nodes) {
  std::uint32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = failure == std::errc() && end == text.data() + text.size();
  const bool known =
      is_number && std::any_of(nodes.begin(), nodes.end(), [&](const NumaNode& each) { return each.number == number; });
  if (known) return NodeIndex{number};
  std::string there;
  for (const NumaNode& each : nodes) there += (there.empty() ? "" : ", ") + std::to_string(each.number);
  std::error_code unknown;
  const bool forbidden =
      is_number && std::filesystem::exists("/sys/devices/system/node/node" + std::to_string(number), unknown);
  return Error{.cause = Cause::unsupported,
               .message = (forbidden ? "this process may not use that NUMA node, by its cpuset; it may use "
                                     : "there is no such NUMA node; there are ") +
                          there};
}

}  // namespace vedette
