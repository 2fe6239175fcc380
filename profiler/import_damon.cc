// DAMON's records, as `damo record` writes them (damo, src/_damo_records.py; its --output_type json_compressed, the
// default, comes here unpacked). Tried with the records in damo's own tests/report.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "model/broken_json.h"
#include "profiler/imports.h"

namespace vedette {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t page = 4096;
constexpr std::size_t most_regions = 50'000'000;
constexpr long double largest = 9.0e18L;
constexpr std::uint64_t most_pages = std::uint64_t{1} << 50;  // 4 EiB

struct Malformed {
  std::string message;
};

struct Unit {
  std::string_view name;
  long double factor;
};
// damo's, src/_damo_fmt_str.py: a K is 1024 however it is spelt. In bytes, nanoseconds, percent.
constexpr Unit units[] = {{"", 1},          {"%", 1},         {"B", 1},         {"K", 0x1p10L},   {"KB", 0x1p10L},
                          {"KiB", 0x1p10L}, {"M", 0x1p20L},   {"MB", 0x1p20L},  {"MiB", 0x1p20L}, {"G", 0x1p30L},
                          {"GB", 0x1p30L},  {"GiB", 0x1p30L}, {"T", 0x1p40L},   {"TB", 0x1p40L},  {"TiB", 0x1p40L},
                          {"P", 0x1p50L},   {"PB", 0x1p50L},  {"PiB", 0x1p50L}, {"ns", 1},        {"us", 1e3L},
                          {"ms", 1e6L},     {"s", 1e9L},      {"m", 6e10L},     {"h", 3.6e12L},   {"d", 8.64e13L}};

// One number and its unit at the begin of `text`, which loses them; nullopt: there is none.
std::optional<std::pair<long double, std::string_view>> term(std::string_view& text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); };
  const std::size_t digits = std::min(text.find_first_not_of("-.0123456789"), text.size());
  const std::string number(text.substr(0, digits));
  char* end = nullptr;
  const long double value = std::strtold(number.c_str(), &end);
  if (number.empty() || end != number.c_str() + number.size()) return std::nullopt;
  text.remove_prefix(digits);
  skip();
  const std::string_view name = text.substr(0, text.find_first_of(" -.0123456789"));
  const auto unit =
      std::find_if(std::begin(units), std::end(units), [&](const Unit& each) { return each.name == name; });
  if (unit == std::end(units)) return std::nullopt;
  text.remove_prefix(name.size());
  skip();
  return std::pair{value * unit->factor, name};
}

// A number, or text like "4,096", "8K", "95%", "2 m 59 s 503 ms": in bytes, nanoseconds, or as it stands. nullopt:
// null.
std::optional<long double> quantity(const Json& value, const char* what) {
  if (value.is_null()) return std::nullopt;
  if (value.is_number()) return value.get<long double>();
  if (!value.is_string()) throw Malformed{std::string(what) + " is neither a number nor text"};
  std::string text = value.get<std::string>();
  std::erase(text, ',');
  std::string_view rest = text;
  long double sum = 0;
  for (bool first = true; first || !rest.empty(); first = false) {
    const auto found = term(rest);
    const bool alone = first && rest.empty();
    if (!found || (found->second.empty() && !alone))
      throw Malformed{std::string(what) + " is '" + value.get<std::string>().substr(0, 40) + "', which is no number"};
    sum += found->first;
  }
  return sum;
}

std::uint64_t natural(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Malformed{std::string("lacks the key '") + key + "'"};
  if (found->is_number_unsigned() && found->get<std::uint64_t>() <= static_cast<std::uint64_t>(largest))
    return found->get<std::uint64_t>();
  if (found->is_string()) {  // exactly, where a double would round: times since 1970, addresses
    std::string digits = found->get<std::string>();
    std::erase(digits, ',');
    if (!digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == digits.npos)
      return std::stoull(digits);
    if (digits.size() == 19 && digits.find_first_not_of("0123456789") == digits.npos && digits < "9000000000000000000")
      return std::stoull(digits);
  }
  const std::optional<long double> value = quantity(*found, key);
  if (!value || !(*value >= 0 && *value <= largest)) throw Malformed{std::string(key) + " is out of range"};
  return static_cast<std::uint64_t>(*value);
}

const Json& list(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_array())
    throw Malformed{std::string("lacks the list '") + key + "'"};
  return *found;
}

struct Region {
  std::uint64_t first_page = 0, end_page = 0;  // addresses, in pages
  std::uint64_t samples = 0;
};

struct Shot {  // a snapshot of one target
  std::string target;
  std::uint64_t began = 0, ended = 0;  // ns
  std::vector<Region> regions;
};

// Accesses in samples; a share of the aggregation where only that is told, in percent.
std::uint64_t samples_of(const Json& region) {
  const auto found = region.find("nr_accesses");
  if (found == region.end()) throw Malformed{"lacks the key 'nr_accesses'"};
  std::optional<long double> seen;
  if (found->is_object()) {
    if (found->contains("samples")) seen = quantity((*found)["samples"], "samples");
    if (!seen && found->contains("percent")) seen = quantity((*found)["percent"], "percent");
  } else {
    seen = quantity(*found, "nr_accesses");
  }
  if (!seen || !(*seen >= 0)) return 0;
  return static_cast<std::uint64_t>(std::ceil(std::min(*seen, 1e9L)));
}

Shot read_shot(const Json& snapshot, const std::string& target, std::size_t& regions) {
  Shot shot{.target = target, .began = natural(snapshot, "start_time"), .ended = natural(snapshot, "end_time")};
  if (shot.ended < shot.began) throw Malformed{"a snapshot ends before it begins"};
  for (const Json& region : list(snapshot, "regions")) {
    if (!region.is_object()) throw Malformed{"a region is not an object"};
    const std::uint64_t start = natural(region, "start"), end = natural(region, "end");
    if (end <= start) throw Malformed{"a region ends before it begins"};
    if (++regions > most_regions) throw Malformed{"more than " + std::to_string(most_regions) + " regions"};
    shot.regions.push_back(
        {.first_page = start / page, .end_page = (end + page - 1) / page, .samples = samples_of(region)});
  }
  return shot;
}

std::vector<Shot> read_shots(const Json& records) {
  std::vector<Shot> shots;
  std::size_t regions = 0;
  for (std::size_t r = 0; r < records.size(); ++r) {
    const Json& record = records[r];
    if (!record.is_object()) throw Malformed{"record " + std::to_string(r) + " is not an object"};
    const auto id = record.find("target_id");
    std::string target = "target " + std::to_string(r);
    // an address of the kernel: more than 63 bits
    if (id != record.end() && id->is_number_integer()) target = "target " + id->dump();
    for (const Json& snapshot : list(record, "snapshots")) {
      if (!snapshot.is_object()) throw Malformed{"a snapshot is not an object"};
      shots.push_back(read_shot(snapshot, target, regions));
    }
  }
  if (shots.empty()) throw Malformed{"there are no snapshots"};
  std::stable_sort(shots.begin(), shots.end(), [](const Shot& a, const Shot& b) {
    return std::tie(a.ended, a.target) < std::tie(b.ended, b.target);
  });
  return shots;
}

// Shots of one time, of several targets, are one column of a heat map: a layer, named by when it began.
std::string since(std::uint64_t base, std::uint64_t began) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", static_cast<double>(began - base) / 1e9);
  return text;
}

struct Area {  // pages next to each other that were watched at some time: a tensor
  std::uint64_t first = 0, end = 0;
  std::uint32_t tensor = 0;
};
using Areas = std::map<std::string, std::vector<Area>>;  // by target, ascending

Areas areas_of(const std::vector<Shot>& shots, Trace& trace) {
  std::map<std::string, std::vector<Area>> all;
  for (const Shot& shot : shots)
    for (const Region& r : shot.regions) all[shot.target].push_back({r.first_page, r.end_page, 0});
  Areas joined;
  std::uint64_t pages = 0;
  for (auto& [target, areas] : all) {
    std::sort(areas.begin(), areas.end(), [](const Area& a, const Area& b) { return a.first < b.first; });
    std::vector<Area>& mine = joined[target];
    for (const Area& a : areas) {
      if (!mine.empty() && a.first <= mine.back().end)
        mine.back().end = std::max(mine.back().end, a.end);
      else
        mine.push_back(a);
    }
    for (Area& a : mine) {
      pages += a.end - a.first;
      if (pages > most_pages) throw Malformed{"regions of more than " + std::to_string(most_pages) + " pages"};
      a.tensor = static_cast<std::uint32_t>(trace.tensors.size());
      char name[64];
      std::snprintf(name, sizeof name, "0x%llx-0x%llx", static_cast<unsigned long long>(a.first * page),
                    static_cast<unsigned long long>(a.end * page));
      trace.tensors.push_back({.name = target + " " + name,
                               .bytes = {(a.end - a.first) * page},
                               .kind = TensorKind::constant,
                               .persistent = true});
    }
  }
  return joined;
}

Sampled sampled_from(const std::vector<Shot>& shots) {
  Sampled result;
  Trace& trace = result.trace;
  trace = {.name = "DAMON record",
           .source = "damon",
           .device = "cpu",
           .notes = {"An op is a snapshot, a layer the snapshots of one time; reads and writes are not told apart."}};
  const Areas areas = areas_of(shots, trace);
  const std::uint64_t base = std::min_element(shots.begin(), shots.end(), [](const Shot& a, const Shot& b) {
                               return a.began < b.began;
                             })->began;
  for (std::uint32_t i = 0; i < shots.size(); ++i) {
    const Shot& shot = shots[i];
    if (i == 0 || shot.began != shots[i - 1].began || shot.ended != shots[i - 1].ended)
      trace.layers.push_back({.name = since(base, shot.began)});
    Op op{.name = "snapshot " + std::to_string(i) + " of " + shot.target,
          .layer = LayerIndex{static_cast<std::uint32_t>(trace.layers.size() - 1)},
          .time = {static_cast<std::int64_t>(std::max<std::uint64_t>(1, shot.ended - shot.began))}};
    std::set<TensorIndex> read;
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t>> touched;
    for (const Region& r : shot.regions) {
      if (r.samples == 0) continue;
      const std::vector<Area>& mine = areas.at(shot.target);
      const Area& area = *std::prev(std::upper_bound(mine.begin(), mine.end(), r.first_page,
                                                     [](std::uint64_t p, const Area& a) { return p < a.first; }));
      touched.emplace_back(area.tensor, r.first_page - area.first, r.end_page - area.first, r.samples);
      read.insert({area.tensor});
    }
    std::sort(touched.begin(), touched.end());
    for (const auto& [tensor, begin, end, samples] : touched) {
      trace.pages.push_back({.op = {i}, .tensor = {tensor}, .pages = {begin, end}, .read = true});
      result.samples.push_back(samples);
    }
    op.reads.assign(read.begin(), read.end());
    trace.ops.push_back(std::move(op));
    result.when.push_back(
        {{static_cast<std::int64_t>(shot.began - base)}, {static_cast<std::int64_t>(shot.ended - base)}});
  }
  return result;
}

}  // namespace

Result<Sampled> parse_damon(std::string_view json) {
  try {
    const Json records = Json::parse(json);
    if (!records.is_array()) throw Malformed{"is not a list of records"};
    return sampled_from(read_shots(records));
  } catch (const Malformed& malformed) {
    return Error{Cause::malformed_input, "DAMON's records: " + malformed.message};
  } catch (const Json::exception& broken) {
    return Error{Cause::malformed_input, "DAMON's records: the file " + why_not_json(json, broken)};
  }
}

}  // namespace vedette
