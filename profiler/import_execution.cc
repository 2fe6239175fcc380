// Execution traces as JSON: of torch.profiler.ExecutionTraceObserver (schema 1.0.3 to 1.1.1), and of chakra_trace_link,
// which adds durations and the GPU's kernels.
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/broken_json.h"
#include "profiler/execution_nodes.h"

namespace vedette::foreign {
namespace {

using nlohmann::json;

const json& field(const json& object, const char* key, const json& otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : *found;
}

std::uint64_t number_in(const json& value) { return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0; }

std::string text_in(const json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

std::vector<StorageUse> uses_in(const json& node, const char* side) {
  const json none;
  const json& found = field(node, side, none);
  if (!found.is_object()) return {};
  return storage_uses(field(found, "values", none), field(found, "shapes", none), field(found, "strides", none));
}

ExecutionNode node_in(const json& row) {
  const json none;
  ExecutionNode node{.id = number_in(field(row, "id", none)),
                     .parent = number_in(field(row, "ctrl_deps", none)),
                     .name = text_in(field(row, "name", none))};
  const json& attributes = field(row, "attrs", none);
  if (attributes.is_array())
    for (const json& each : attributes)
      if (each.is_object() && text_in(field(each, "name", none)) == "op_schema")
        node.schema = text_in(field(each, "value", none));
  node.on_device = row.contains("cat");  // as chakra's converter tells them
  const json& own = field(row, "exclusive_dur", none);
  const json& whole = field(row, "dur", none);
  const json& duration = own.is_number() ? own : whole;
  if (duration.is_number()) node.microseconds = duration.get<double>();
  if (!std::isfinite(node.microseconds) || node.microseconds < 0 || node.microseconds > 1e12) node.microseconds = 0;
  node.inputs = uses_in(row, "inputs"), node.outputs = uses_in(row, "outputs");
  return node;
}

}  // namespace

Trace read_execution_trace(std::string_view text) {
  json top;
  try {
    top = json::parse(text);
  } catch (const json::exception& broken) {
    throw Malformed{"the file " + why_not_json(text, broken)};
  }
  const json none;
  const std::string schema = text_in(field(top, "schema", none));
  const json& rows = field(top, "nodes", none);
  if (!rows.is_array()) throw Malformed{"it lacks the list 'nodes'"};
  std::vector<ExecutionNode> nodes;
  for (const json& row : rows) {
    if (!row.is_object()) throw Malformed{"node " + std::to_string(nodes.size()) + " is no object"};
    if (!row.contains("ctrl_deps"))
      throw Malformed{"its schema '" + schema.substr(0, 40) +
                      "' names no 'ctrl_deps'; record it with PyTorch 2.1 or later"};
    nodes.push_back(node_in(row));
  }
  return trace_of_nodes(std::move(nodes), execution_trace_format);
}

}  // namespace vedette::foreign
