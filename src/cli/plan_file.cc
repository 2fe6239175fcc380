#include "cli/plan_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/broken_json.h"
#include "model/named_format.h"

namespace vedette::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view format_name = "vedette-plan-1";
constexpr std::array<std::string_view, 3> verbs{"fetch", "evict", "drop"};          // by Verb
constexpr std::array<std::string_view, 2> fallbacks{"furthest", "least_recent"};    // by Fallback
constexpr std::array<std::string_view, 3> after_lives{"freed", "dropped", "kept"};  // by AfterLife

struct Malformed {
  std::string message;
};

const Json& member(const Json& object, const char* key) {
  if (!object.is_object()) throw Malformed{"has something else where an object should be"};
  const auto found = object.find(key);
  if (found == object.end()) throw Malformed{fmt::format("lacks the key '{}'", key)};
  return *found;
}

void require_keys(const Json& object, std::initializer_list<std::string_view> keys) {
  for (const auto& item : object.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      throw Malformed{fmt::format("has the unknown key '{}'", item.key())};
  }
}

template <class Number>
Number number(const Json& value, const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<Number>::max())
    throw Malformed{fmt::format("{} is {}, which is no whole number in its range", what,
                                value.dump(-1, ' ', false, Json::error_handler_t::replace))};
  return value.get<Number>();
}

std::uint32_t index(const Json& object, const char* key) { return number<std::uint32_t>(member(object, key), key); }

template <class Words>
std::size_t word(const Words& words, const Json& value, const char* what) {
  for (std::size_t w = 0; w < words.size(); ++w) {
    if (value == words[w]) return w;
  }
  throw Malformed{fmt::format("{} is {}, which is none of the known words", what,
                              value.dump(-1, ' ', false, Json::error_handler_t::replace))};
}

const Json& list(const Json& top, const char* key) {
  static const Json none = Json::array();
  if (!top.contains(key)) return none;
  if (!top[key].is_array()) throw Malformed{fmt::format("{} is not a list", key)};
  return top[key];
}

Json move_json(const Move& move) {
  Json row{{"verb", verbs[static_cast<std::size_t>(move.verb)]},
           {"tensor", move.extent.tensor.value},
           {"issue", move.issue.value},
           {"due", move.due.value},
           {"from", move.source.value},
           {"to", move.target.value}};
  if (move.extent.part) row["part"] = {move.extent.part->begin.value, move.extent.part->end.value};
  return row;
}

Move move_of(const Json& row) {
  Move move{.issue = {index(row, "issue")},
            .due = {index(row, "due")},
            .extent = {.tensor = {index(row, "tensor")}},
            .source = {index(row, "from")},
            .target = {index(row, "to")},
            .verb = static_cast<Verb>(word(verbs, member(row, "verb"), "verb"))};
  require_keys(row, {"verb", "tensor", "issue", "due", "from", "to", "part"});
  if (!row.contains("part")) return move;
  const Json& part = row["part"];
  if (!part.is_array() || part.size() != 2) throw Malformed{"part is not a list of two numbers"};
  move.extent.part = Span<Bytes>{{number<std::uint64_t>(part[0], "part")}, {number<std::uint64_t>(part[1], "part")}};
  return move;
}

Plan plan_of(const Json& top) {
  if (const auto another = another_format(top, format_name)) throw Malformed{*another};
  if (!member(top, "format").is_string()) throw Malformed{"has a format that is no word"};
  require_keys(top, {"format", "home", "moves", "in_place", "recomputations", "order", "barriers", "reserved",
                     "fallback", "after_life", "one_copy", "block", "window"});
  (void)member(top, "moves");  // a plan without a move says so
  Plan plan;
  for (const Json& tier : list(top, "home")) plan.home.push_back({number<std::uint32_t>(tier, "home")});
  for (const Json& row : list(top, "moves")) plan.moves.push_back(move_of(row));
  for (const Json& row : list(top, "in_place"))
    plan.in_place.push_back({{index(row, "op")}, {index(row, "tensor")}, {index(row, "tier")}});
  for (const Json& row : list(top, "recomputations"))
    plan.recomputations.push_back({{index(row, "before")}, {index(row, "producer")}, {index(row, "tensor")}});
  for (const Json& op : list(top, "order")) plan.order.push_back({number<std::uint32_t>(op, "order")});
  for (const Json& op : list(top, "barriers")) plan.barriers.push_back({number<std::uint32_t>(op, "barriers")});
  if (top.contains("reserved")) plan.reserved = {number<std::uint64_t>(top["reserved"], "reserved")};
  if (top.contains("fallback")) plan.fallback = static_cast<Fallback>(word(fallbacks, top["fallback"], "fallback"));
  if (top.contains("after_life"))
    plan.after_life = static_cast<AfterLife>(word(after_lives, top["after_life"], "after_life"));
  if (top.contains("one_copy")) {
    if (!top["one_copy"].is_boolean()) throw Malformed{"one_copy is neither true nor false"};
    plan.one_copy = top["one_copy"].get<bool>();
  }
  if (top.contains("block")) plan.block = {number<std::uint64_t>(top["block"], "block")};
  if (top.contains("window")) plan.paging = Paging{.window = number<std::uint32_t>(top["window"], "window")};
  constexpr std::uint64_t least_block = 4096;  // of smaller ones a tensor has so many that a replay would not end
  if (plan.block.value > 0 && plan.block.value < least_block)
    throw Malformed{
        fmt::format("has blocks of {} bytes; they are of {} at least, or 0 for none", plan.block.value, least_block)};
  return plan;
}

}  // namespace

std::string format_plan(const Plan& plan) {
  std::string text = fmt::format("{{\"format\": \"{}\",\n\"home\": [", format_name);
  for (std::size_t t = 0; t < plan.home.size(); ++t) text += fmt::format("{}{}", t == 0 ? "" : ",", plan.home[t].value);
  text += "],\n\"moves\": [";
  for (std::size_t m = 0; m < plan.moves.size(); ++m)
    text += fmt::format("{}{}", m == 0 ? "\n" : ",\n", move_json(plan.moves[m]).dump());
  text += "],\n\"in_place\": [";
  for (std::size_t i = 0; i < plan.in_place.size(); ++i) {
    const InPlace& each = plan.in_place[i];
    text += fmt::format("{}{{\"op\": {}, \"tensor\": {}, \"tier\": {}}}", i == 0 ? "\n" : ",\n", each.op.value,
                        each.tensor.value, each.tier.value);
  }
  text += "],\n\"recomputations\": [";
  for (std::size_t r = 0; r < plan.recomputations.size(); ++r) {
    const Recomputation& each = plan.recomputations[r];
    text += fmt::format("{}{{\"before\": {}, \"producer\": {}, \"tensor\": {}}}", r == 0 ? "\n" : ",\n",
                        each.before.value, each.producer.value, each.tensor.value);
  }
  for (const auto& [key, ops] : {std::pair{"order", &plan.order}, std::pair{"barriers", &plan.barriers}}) {
    text += fmt::format("],\n\"{}\": [", key);
    for (std::size_t i = 0; i < ops->size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", (*ops)[i].value);
  }
  text +=
      fmt::format("],\n\"reserved\": {}, \"fallback\": \"{}\", \"after_life\": \"{}\", \"one_copy\": {}, \"block\": {}",
                  plan.reserved.value, fallbacks[static_cast<std::size_t>(plan.fallback)],
                  after_lives[static_cast<std::size_t>(plan.after_life)], plan.one_copy, plan.block.value);
  if (plan.paging) text += fmt::format(", \"window\": {}", plan.paging->window);
  return text + "}\n";
}

Result<Plan> parse_plan(std::string_view json, const Trace& trace) {
  try {
    Plan plan = plan_of(Json::parse(json));
    if (plan.home.size() != trace.tensors.size())
      throw Malformed{fmt::format("has {} homes for the {} tensors of {}; it was made for another trace",
                                  plan.home.size(), trace.tensors.size(), trace.name)};
    return plan;
  } catch (const Malformed& malformed) {
    return Error{Cause::malformed_input, "the plan " + malformed.message};
  } catch (const nlohmann::json::exception& broken) {
    return Error{Cause::malformed_input, "the plan " + why_not_json(json, broken)};
  }
}

}  // namespace vedette::cli
