// Reads and writes vedette-trace-1, the JSON of one training step. The reader checks each value where it is read, and
// names the place of the first error ("op 3: reads: ..."). The rules are those of the format's checker, except its
// search for file system paths, which protects published files and not programs.
//
// A layer in the file is a string beside a phase; here each distinct pair becomes one Layer, numbered in order of first
// use.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "model/broken_json.h"
#include "model/named_format.h"
#include "vedette/model.h"

namespace vedette {
namespace {

using Json = nlohmann::json;

constexpr std::string_view format_name = "vedette-trace-1";
// Sums of sizes and of times stay far from overflow: a trace may hold 4 EiB and last 146 years.
constexpr std::uint64_t largest_sum = std::uint64_t{1} << 62;
// A step of more than a million ops is a file that repeats itself, or a bug in its writer. Tensors outnumber ops in
// training.
constexpr std::size_t most_ops = 1'000'000, most_tensors = 10'000'000;

constexpr std::array<std::pair<std::string_view, TensorKind>, 7> kinds{{{"weight", TensorKind::weight},
                                                                        {"gradient", TensorKind::gradient},
                                                                        {"optimizer", TensorKind::optimizer},
                                                                        {"activation", TensorKind::activation},
                                                                        {"workspace", TensorKind::workspace},
                                                                        {"input", TensorKind::input},
                                                                        {"constant", TensorKind::constant}}};
constexpr std::array<std::pair<std::string_view, Phase>, 3> phases{
    {{"forward", Phase::forward}, {"backward", Phase::backward}, {"optimizer", Phase::optimizer}}};

template <class Table, class Value>
std::string_view word_for(const Table& table, Value value) {
  for (const auto& [word, meaning] : table) {
    if (meaning == value) return word;
  }
  return {};
}

// Thrown inside this file only: parse_trace() turns it into an Error.
struct Malformed {
  std::string message;
};

struct Place {  // the object that is read, for messages: "op 3"
  std::string name;
  [[noreturn]] void fail(const std::string& what) const { throw Malformed{name.empty() ? what : name + ": " + what}; }
};
const Place whole_file;

const Json& member(const Json& object, const char* key, const Place& place) {
  const auto found = object.find(key);
  if (found == object.end()) place.fail(std::string("lacks the key '") + key + "'");
  return *found;
}

void require_keys(const Json& object, std::span<const std::string_view> keys, const Place& place) {
  if (!object.is_object()) place.fail("is not an object");
  for (const auto& item : object.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      place.fail("has the unknown key '" + item.key() + "'");
  }
}

std::string text(const Json& object, const char* key, const Place& place) {
  const Json& value = member(object, key, place);
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    place.fail(std::string(key) + " is not a non-empty string");
  return value.get<std::string>();
}

std::uint64_t whole_number(const Json& object, const char* key, std::uint64_t least, std::uint64_t most,
                           const Place& place) {
  const Json& value = member(object, key, place);
  const bool in_range =
      value.is_number_unsigned() && value.get<std::uint64_t>() >= least && value.get<std::uint64_t>() <= most;
  if (!in_range) {
    place.fail(std::string(key) + " is not an integer between " + std::to_string(least) + " and " +
               std::to_string(most));
  }
  return value.get<std::uint64_t>();
}

template <class Table>
auto one_of(const Table& table, const Json& object, const char* key, const Place& place) {
  const std::string word = text(object, key, place);
  for (const auto& [name, meaning] : table) {
    if (name == word) return meaning;
  }
  place.fail(std::string(key) + " is '" + word + "', which is none of the known words");
}

std::vector<TensorIndex> tensor_list(const Json& object, const char* key, std::size_t tensor_count,
                                     const Place& place) {
  const Json& list = member(object, key, place);
  if (!list.is_array()) place.fail(std::string(key) + " is not a list");
  std::vector<TensorIndex> found;
  for (const Json& each : list) {
    if (!each.is_number_unsigned() || each.get<std::uint64_t>() >= tensor_count) {
      place.fail(std::string(key) + " has an id out of range");
    }
    found.push_back({static_cast<std::uint32_t>(each.get<std::uint64_t>())});
  }
  std::sort(found.begin(), found.end());
  if (std::adjacent_find(found.begin(), found.end()) != found.end())
    place.fail(std::string(key) + " names an id twice");
  return found;
}

const Json& rows(const Json& top, const char* key, std::size_t most) {
  const Json& list = member(top, key, whole_file);
  if (!list.is_array() || list.empty()) Place{key}.fail("is not a non-empty list");
  if (list.size() > most)
    Place{key}.fail("has " + std::to_string(list.size()) + " entries, more than the " + std::to_string(most) +
                    " that a step may have");
  return list;
}

void add(std::uint64_t& sum, std::uint64_t value, const char* what, const Place& place) {
  if (value > largest_sum - sum) place.fail(std::string(what) + " passes " + std::to_string(largest_sum));
  sum += value;
}

std::vector<std::int64_t> shape(const Json& row, const Place& place) {
  constexpr std::size_t most_sizes = 64;
  std::vector<std::int64_t> sizes;
  if (!row.contains("shape")) return sizes;
  const Json& list = row["shape"];
  if (!list.is_array() || list.size() > most_sizes) place.fail("shape is no list of at most 64 sizes");
  for (const Json& size : list) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > largest_sum) place.fail("shape has what is no size");
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

// `sum` becomes the bytes of all.
std::vector<Tensor> read_tensors(const Json& list, std::uint64_t& sum) {
  constexpr std::array<std::string_view, 6> keys{"id", "name", "bytes", "kind", "persistent", "shape"};
  std::vector<Tensor> tensors;
  for (const Json& row : list) {
    const Place place{"tensor " + std::to_string(tensors.size())};
    require_keys(row, keys, place);
    whole_number(row, "id", tensors.size(), tensors.size(), place);
    const std::uint64_t bytes = whole_number(row, "bytes", 1, largest_sum, place);
    add(sum, bytes, "bytes: the sum over all tensors", place);
    const Json& persistent = member(row, "persistent", place);
    if (!persistent.is_boolean()) place.fail("persistent is neither true nor false");
    tensors.push_back({.name = text(row, "name", place),
                       .bytes = {bytes},
                       .kind = one_of(kinds, row, "kind", place),
                       .persistent = persistent.get<bool>(),
                       .shape = shape(row, place)});
  }
  return tensors;
}

class OpReader {
 public:
  OpReader(Trace& trace, std::uint64_t bytes) : trace_(trace), bytes_(bytes) {}

  void read(const Json& row) {
    constexpr std::array<std::string_view, 10> keys{"id",    "name",   "layer",           "phase", "ns",
                                                    "reads", "writes", "workspace_bytes", "frees", "runs_again"};
    const Place place{"op " + std::to_string(trace_.ops.size())};
    require_keys(row, keys, place);
    whole_number(row, "id", trace_.ops.size(), trace_.ops.size(), place);
    Op op;
    op.name = text(row, "name", place);
    op.phase = one_of(phases, row, "phase", place);
    op.layer = layer(member(row, "layer", place), op.phase, place);
    op.time = {static_cast<std::int64_t>(whole_number(row, "ns", 1, largest_sum, place))};
    add(time_, static_cast<std::uint64_t>(op.time.value), "ns: the sum over all ops", place);
    op.workspace = {whole_number(row, "workspace_bytes", 0, largest_sum, place)};
    add(bytes_, op.workspace.value, "workspace_bytes: the sum over all ops and tensors", place);
    op.reads = tensor_list(row, "reads", trace_.tensors.size(), place);
    op.writes = tensor_list(row, "writes", trace_.tensors.size(), place);
    if (row.contains("frees")) op.frees = tensor_list(row, "frees", trace_.tensors.size(), place);
    if (row.contains("runs_again")) {
      if (!row["runs_again"].is_boolean()) place.fail("runs_again is neither true nor false");
      op.runs_again = row["runs_again"].get<bool>();
    }
    trace_.ops.push_back(std::move(op));
  }

 private:
  std::optional<LayerIndex> layer(const Json& value, Phase phase, const Place& place) {
    if (value.is_null()) return std::nullopt;
    if (!value.is_string()) place.fail("layer is neither a string nor null");
    const auto [found, fresh] = known_.try_emplace({value.get<std::string>(), phase},
                                                   LayerIndex{static_cast<std::uint32_t>(trace_.layers.size())});
    if (fresh) trace_.layers.push_back({.name = found->first.first, .phase = phase});
    return found->second;
  }

  Trace& trace_;
  std::uint64_t bytes_, time_ = 0;  // of all tensors and of the workspaces so far; of the ops so far
  std::map<std::pair<std::string, Phase>, LayerIndex> known_;
};

// Every tensor is written before it is read, is not used after it was freed, and is used at all.
void require_sound_lives(const Trace& trace) {
  struct Seen {
    bool written = false, accessed = false, freed = false;
  };
  std::vector<Seen> seen(trace.tensors.size());
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const Place place{"op " + std::to_string(i)};
    const auto touch = [&](TensorIndex t) {
      if (seen[t.value].freed) place.fail("accesses tensor " + std::to_string(t.value) + " after it was freed");
      seen[t.value].accessed = true;
    };
    for (TensorIndex t : op.reads) {
      touch(t);
      if (!trace.tensors[t.value].persistent && !seen[t.value].written) {
        place.fail("reads tensor " + std::to_string(t.value) + " before any write");
      }
    }
    for (TensorIndex t : op.writes) {
      touch(t);
      seen[t.value].written = true;
    }
    for (TensorIndex t : op.frees) {
      if (trace.tensors[t.value].persistent) place.fail("frees the persistent tensor " + std::to_string(t.value));
      if (!seen[t.value].written) place.fail("frees tensor " + std::to_string(t.value) + " before any write");
      if (seen[t.value].freed) place.fail("frees tensor " + std::to_string(t.value) + " a second time");
      seen[t.value].freed = true;
    }
  }
  for (std::size_t t = 0; t < seen.size(); ++t) {
    if (!seen[t].accessed && !trace.tensors[t].persistent)
      Place{"tensor " + std::to_string(t)}.fail("is never accessed");
  }
}

// Parses strictly: one value, no byte order mark, no key twice in an object.
Json read_json(std::string_view json) {
  if (json.starts_with("\xef\xbb\xbf")) throw Malformed{"starts with a byte order mark"};
  std::vector<std::set<std::string, std::less<>>> open;
  std::string repeated;
  const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  Json top = Json::parse(json, watch);
  if (!repeated.empty()) throw Malformed{"has the key '" + repeated + "' twice in an object"};
  return top;
}

Trace read_trace(const Json& top) {
  constexpr std::array<std::string_view, 7> keys{"format", "name", "source", "device", "notes", "tensors", "ops"};
  if (const auto another = another_format(top, format_name)) throw Malformed{"the file " + *another};
  require_keys(top, keys, {"top level"});
  (void)text(top, "format", {});
  Trace trace{.name = text(top, "name", {}), .source = text(top, "source", {}), .device = text(top, "device", {})};
  const Json& notes = member(top, "notes", whole_file);
  if (!notes.is_array()) Place{"notes"}.fail("is not a list of strings");
  for (const Json& note : notes) {
    if (!note.is_string()) Place{"notes"}.fail("is not a list of strings");
    trace.notes.push_back(note.get<std::string>());
  }
  std::uint64_t bytes = 0;
  trace.tensors = read_tensors(rows(top, "tensors", most_tensors), bytes);
  OpReader reader(trace, bytes);
  for (const Json& row : rows(top, "ops", most_ops)) reader.read(row);
  require_sound_lives(trace);
  return trace;
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string list_of(const std::vector<TensorIndex>& tensors) {
  std::string out = "[";
  for (TensorIndex t : tensors) out.append(out.size() > 1 ? "," : "").append(std::to_string(t.value));
  return out + "]";
}

std::string row_of(const Trace& trace, std::size_t index) {
  const Op& op = trace.ops[index];
  std::string row = "{\"id\":" + std::to_string(index) + ",\"name\":" + quoted(op.name);
  row += ",\"layer\":" + (op.layer ? quoted(trace.layers.at(op.layer->value).name) : std::string("null"));
  row += ",\"phase\":\"" + std::string(word_for(phases, op.phase)) + "\",\"ns\":" + std::to_string(op.time.value);
  row += ",\"reads\":" + list_of(op.reads) + ",\"writes\":" + list_of(op.writes);
  row += ",\"workspace_bytes\":" + std::to_string(op.workspace.value);
  if (!op.frees.empty()) row += ",\"frees\":" + list_of(op.frees);
  if (op.runs_again) row += std::string(",\"runs_again\":") + (*op.runs_again ? "true" : "false");
  return row + "}";
}

std::string row_of(const Tensor& tensor, std::size_t index) {
  std::string shape;
  for (const std::int64_t size : tensor.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(size));
  return "{\"id\":" + std::to_string(index) + ",\"name\":" + quoted(tensor.name) +
         ",\"bytes\":" + std::to_string(tensor.bytes.value) + ",\"kind\":\"" +
         std::string(word_for(kinds, tensor.kind)) + "\",\"persistent\":" + (tensor.persistent ? "true" : "false") +
         (shape.empty() ? "" : ",\"shape\":[" + shape + "]") + "}";
}

}  // namespace

Result<Trace> parse_trace(std::string_view json) {
  try {
    return read_trace(read_json(json));
  } catch (const Malformed& malformed) {
    return Error{.cause = Cause::malformed_input, .message = "trace: " + malformed.message};
  } catch (const Json::exception& broken) {
    return Error{.cause = Cause::malformed_input, .message = "trace: the file " + why_not_json(json, broken)};
  }
}

std::string format_trace(const Trace& trace) {
  std::string out = "{\"format\":\"" + std::string(format_name) + "\",\"name\":" + quoted(trace.name) +
                    ",\"source\":" + quoted(trace.source) + ",\"device\":" + quoted(trace.device) + ",\n\"notes\":[";
  for (std::size_t i = 0; i < trace.notes.size(); ++i) out.append(i ? ",\n" : "\n").append(quoted(trace.notes[i]));
  out += "],\n\"tensors\":[";
  for (std::size_t i = 0; i < trace.tensors.size(); ++i)
    out.append(i ? ",\n" : "\n").append(row_of(trace.tensors[i], i));
  out += "],\n\"ops\":[";
  for (std::size_t i = 0; i < trace.ops.size(); ++i) out.append(i ? ",\n" : "\n").append(row_of(trace, i));
  return out + "]}\n";
}

}  // namespace vedette
