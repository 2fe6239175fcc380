// Reads and writes vedette-machine-1.
#include "vedette/machine.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/broken_json.h"
#include "model/named_format.h"

namespace vedette {

Machine within_host_memory(Machine machine) {
  const std::uint64_t most = machine.host_memory.left_for_links();
  for (Link& link : machine.links) {
    if (!machine.host_memory.limits(link)) continue;
    link.bytes_per_s = link.bytes_per_s == 0 ? most : std::min(link.bytes_per_s, most);
    link.alone_bytes_per_s = std::min(link.alone_bytes_per_s, most);
  }
  return machine;
}

Machine on_its_bus(Machine machine) {
  machine = within_host_memory(std::move(machine));
  for (Link& link : machine.links) {
    if (link.alone_bytes_per_s == 0) continue;
    link.bytes_per_s = link.alone_bytes_per_s;
    link.shared = std::max(link.source.value, link.target.value);
  }
  return machine;
}

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "vedette-machine-1";
constexpr std::uint64_t most_interference = 1000;          // percent
constexpr std::uint64_t largest = std::uint64_t{1} << 60;  // of any number here: sums stay far from overflow

struct Malformed {  // thrown inside this file only
  std::string message;
};

class Reader {
 public:
  Reader(const Json& object, std::string place, std::initializer_list<std::string_view> keys)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail("is not an object");
    for (const auto& item : object.items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
        fail("has the unknown key '" + item.key() + "'");
    }
  }

  bool has(const char* key) const { return object_.contains(key); }
  [[noreturn]] void fail(const std::string& what) const { throw Malformed{place_ + " " + what}; }

  const Json& member(const char* key) const {
    if (!has(key)) fail(std::string("lacks the key '") + key + "'");
    return object_[key];
  }
  std::string text(const char* key) const {
    const Json& value = member(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      fail(std::string(key) + " is not a non-empty string");
    return value.get<std::string>();
  }
  std::uint64_t number(const char* key, std::uint64_t least) const {
    const Json& value = member(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > largest)
      fail(std::string(key) + " is not an integer between " + std::to_string(least) + " and 2^60");
    return value.get<std::uint64_t>();
  }
  std::uint64_t number_or(const char* key, std::uint64_t otherwise) const {
    return has(key) ? number(key, 0) : otherwise;
  }
  bool truth(const char* key) const {
    if (!has(key)) return false;
    if (!member(key).is_boolean()) fail(std::string(key) + " is neither true nor false");
    return member(key).get<bool>();
  }
  const Json& list(const char* key) const {
    const Json& value = member(key);
    if (!value.is_array() || value.size() > 64) fail(std::string(key) + " is not a list of at most 64 entries");
    return value;
  }

 private:
  const Json& object_;
  std::string place_;
};

void read_tiers(const Json& list, Machine& machine) {
  for (const Json& row : list) {
    const Reader tier(row, "machine: tier " + std::to_string(machine.tiers.size()),
                      {"name", "bytes", "addressable", "disk"});
    machine.tiers.push_back({.name = tier.text("name"),
                             .capacity = {tier.number("bytes", 1)},
                             .addressable = tier.truth("addressable"),
                             .disk = tier.has("disk") && tier.truth("disk")});
    for (std::size_t k = 0; k + 1 < machine.tiers.size(); ++k) {
      if (machine.tiers[k].name == machine.tiers.back().name) tier.fail("has the name of another tier");
    }
  }
}

std::optional<TierIndex> tier_of(const Machine& machine, const std::string& name) {
  for (std::uint32_t k = 0; k < machine.tiers.size(); ++k) {
    if (machine.tiers[k].name == name) return TierIndex{k};
  }
  return std::nullopt;
}

TierIndex tier_named(const Machine& machine, const Reader& link, const char* key) {
  const std::string name = link.text(key);
  if (const auto found = tier_of(machine, name)) return *found;
  link.fail("goes " + std::string(key) + " '" + name + "', which is no tier");
}

void read_links(const Json& list, Machine& machine) {
  for (const Json& row : list) {
    const Reader link(row, "machine: link " + std::to_string(machine.links.size()),
                      {"from", "to", "bytes_per_s", "latency_ns", "bus", "alone_bytes_per_s"});
    Link read{.source = tier_named(machine, link, "from"),
              .target = tier_named(machine, link, "to"),
              .bytes_per_s = link.has("bytes_per_s") ? link.number("bytes_per_s", 1) : 0,
              .latency = {static_cast<std::int64_t>(link.number_or("latency_ns", 0))}};
    if (link.has("bus"))
      read.shared = static_cast<std::uint32_t>(std::min<std::uint64_t>(link.number("bus", 0), 1U << 30));
    if (link.has("alone_bytes_per_s")) {
      read.alone_bytes_per_s = link.number("alone_bytes_per_s", 1);
      if (read.bytes_per_s == 0 || read.alone_bytes_per_s < read.bytes_per_s)
        link.fail("has an alone_bytes_per_s below its bytes_per_s");
    }
    if (read.source == read.target) link.fail("goes from a tier to itself");
    if (machine.link(read.source, read.target) != nullptr) link.fail("joins the same two tiers as another link");
    machine.links.push_back(read);
  }
}

HostMemory read_host_memory(const Json& json, const Machine& machine) {
  const Reader host(json, "machine: host_memory", {"tier", "bytes_per_s", "processor_bytes_per_s"});
  const std::string name = host.text("tier");
  const auto tier = tier_of(machine, name);
  if (!tier) host.fail("lies in '" + name + "', which is no tier");
  const HostMemory read{.tier = *tier,
                        .bytes_per_s = host.number("bytes_per_s", 1),
                        .processor_bytes_per_s = host.number_or("processor_bytes_per_s", 0)};
  if (read.processor_bytes_per_s >= read.bytes_per_s)
    host.fail("leaves nothing to links; give a processor_bytes_per_s below its bytes_per_s");
  return read;
}

void read_prices(const Json& list, Machine& machine) {
  constexpr std::uint64_t most_percent = 10'000;
  if (!list.is_array()) throw Malformed{"machine: in_place_prices is not a list"};
  for (const Json& row : list) {
    const Reader price(row, "machine: in-place price " + std::to_string(machine.in_place_prices.size()),
                       {"op", "percent"});
    const std::uint64_t percent = price.number("percent", 1);
    if (percent > most_percent) price.fail("has a percent above " + std::to_string(most_percent));
    if (!machine.in_place_prices.empty() && machine.in_place_prices.back().op >= price.text("op"))
      price.fail("is out of the order of the ops' names");
    machine.in_place_prices.push_back({.op = price.text("op"), .percent = static_cast<std::uint32_t>(percent)});
  }
}

Machine read_machine(const Json& json) {
  if (const auto another = another_format(json, format_name)) throw Malformed{"the file " + *another};
  const Reader top(json, "machine",
                   {"format", "name", "tiers", "links", "fault_ns", "granule_bytes", "can_recompute", "can_reorder",
                    "whole_tensors", "interference_percent", "remap_ns", "early_fetches", "writes_wait",
                    "plans_in_turns", "host_memory", "in_place_prices"});
  (void)top.text("format");
  Machine machine;
  read_tiers(top.list("tiers"), machine);
  if (machine.tiers.empty()) top.fail("has no tiers");
  read_links(top.list("links"), machine);
  machine.fault_time = {static_cast<std::int64_t>(top.number_or("fault_ns", 0))};
  if (top.has("granule_bytes")) machine.granule = {top.number("granule_bytes", 1)};
  machine.can_recompute = top.truth("can_recompute");
  machine.can_reorder = top.truth("can_reorder");
  machine.whole_tensors = top.truth("whole_tensors");
  if (top.has("interference_percent")) {
    const std::uint64_t percent = top.number("interference_percent", 0);
    if (percent > most_interference) top.fail("has an interference_percent above " + std::to_string(most_interference));
    machine.interference_percent = static_cast<std::uint32_t>(percent);
  }
  machine.remap_time = {static_cast<std::int64_t>(top.number_or("remap_ns", 0))};
  machine.habits = {.early_fetches = top.truth("early_fetches"),
                    .writes_wait = top.truth("writes_wait"),
                    .plans_in_turns = top.truth("plans_in_turns")};
  if (top.has("host_memory")) machine.host_memory = read_host_memory(top.member("host_memory"), machine);
  if (top.has("in_place_prices")) read_prices(top.member("in_place_prices"), machine);
  return machine;
}

}  // namespace

Result<Machine> parse_machine(std::string_view json) {
  try {
    return read_machine(Json::parse(json));
  } catch (const Malformed& malformed) {
    return Error{Cause::malformed_input, malformed.message};
  } catch (const nlohmann::json::exception& failure) {
    return Error{Cause::malformed_input, "machine: the file " + why_not_json(json, failure)};
  }
}

std::string format_machine(const Machine& machine, std::string_view name) {
  Json json{{"format", format_name}};
  if (!name.empty()) json["name"] = name;
  json["tiers"] = Json::array();
  for (const Tier& tier : machine.tiers) {
    json["tiers"].push_back({{"name", tier.name}, {"bytes", tier.capacity.value}, {"addressable", tier.addressable}});
    if (tier.disk) json["tiers"].back()["disk"] = true;
  }
  json["links"] = Json::array();
  for (const Link& link : machine.links) {
    Json row{{"from", machine.tiers.at(link.source.value).name}, {"to", machine.tiers.at(link.target.value).name}};
    if (link.bytes_per_s != 0) row["bytes_per_s"] = link.bytes_per_s;
    row["latency_ns"] = link.latency.value;
    if (link.shared) row["bus"] = *link.shared;
    if (link.alone_bytes_per_s != 0) row["alone_bytes_per_s"] = link.alone_bytes_per_s;
    json["links"].push_back(std::move(row));
  }
  for (const InPlacePrice& price : machine.in_place_prices)
    json["in_place_prices"].push_back({{"op", price.op}, {"percent", price.percent}});
  json["fault_ns"] = machine.fault_time.value;
  json["granule_bytes"] = machine.granule.value;
  json["can_recompute"] = machine.can_recompute;
  json["can_reorder"] = machine.can_reorder;
  if (machine.whole_tensors) json["whole_tensors"] = true;
  if (machine.interference_percent) json["interference_percent"] = *machine.interference_percent;
  if (machine.remap_time.value != 0) json["remap_ns"] = machine.remap_time.value;
  if (machine.habits.early_fetches) json["early_fetches"] = true;
  if (machine.habits.writes_wait) json["writes_wait"] = true;
  if (machine.habits.plans_in_turns) json["plans_in_turns"] = true;
  if (const HostMemory& host = machine.host_memory; host.bytes_per_s != 0) {
    json["host_memory"] = {{"tier", machine.tiers.at(host.tier.value).name}, {"bytes_per_s", host.bytes_per_s}};
    if (host.processor_bytes_per_s != 0) json["host_memory"]["processor_bytes_per_s"] = host.processor_bytes_per_s;
  }
  return json.dump(2) + "\n";
}

}  // namespace vedette
