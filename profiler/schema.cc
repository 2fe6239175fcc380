// The tables. Rows that are looked up by step are kept in the order of steps (WITHOUT ROWID), so that a step of a long
// run is read without reading the run.
#include "profiler/schema.h"

#include <cstddef>
#include <map>

namespace vedette {

namespace {

constexpr const char* newest = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tiers(tier INTEGER PRIMARY KEY, name TEXT NOT NULL, capacity_bytes INTEGER NOT NULL, addressable INTEGER NOT NULL);
CREATE TABLE links(source INTEGER NOT NULL, target INTEGER NOT NULL, bytes_per_s INTEGER NOT NULL, latency_ns INTEGER NOT NULL,
  shared INTEGER, alone_bytes_per_s INTEGER NOT NULL);
CREATE TABLE profiles(profile INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, name TEXT NOT NULL,
  source TEXT NOT NULL, device TEXT NOT NULL, page_bytes INTEGER NOT NULL, tracked INTEGER NOT NULL);
CREATE TABLE notes(profile INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(profile, position)) WITHOUT ROWID;
CREATE TABLE tensors(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL,
  kind TEXT NOT NULL, persistent INTEGER NOT NULL, shape TEXT, site_layer TEXT, site_op TEXT, PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
CREATE TABLE tensor_places(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, begin_byte INTEGER NOT NULL, end_byte INTEGER NOT NULL,
  PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
CREATE TABLE stacks(stack INTEGER NOT NULL, position INTEGER NOT NULL, frame TEXT NOT NULL, PRIMARY KEY(stack, position)) WITHOUT ROWID;
CREATE TABLE tensor_stacks(profile INTEGER NOT NULL, tensor INTEGER NOT NULL, stack INTEGER NOT NULL, PRIMARY KEY(profile, tensor)) WITHOUT ROWID;
CREATE TABLE layers(profile INTEGER NOT NULL, layer INTEGER NOT NULL, name TEXT NOT NULL, phase TEXT NOT NULL,
  PRIMARY KEY(profile, layer)) WITHOUT ROWID;
CREATE TABLE ops(profile INTEGER NOT NULL, op INTEGER NOT NULL, name TEXT NOT NULL, layer INTEGER, phase TEXT NOT NULL,
  time_ns INTEGER NOT NULL, workspace_bytes INTEGER NOT NULL, PRIMARY KEY(profile, op)) WITHOUT ROWID;
CREATE TABLE operands(profile INTEGER NOT NULL, op INTEGER NOT NULL, role TEXT NOT NULL, tensor INTEGER NOT NULL,
  PRIMARY KEY(profile, op, role, tensor)) WITHOUT ROWID;
CREATE TABLE page_accesses(profile INTEGER NOT NULL, op INTEGER NOT NULL, tensor INTEGER NOT NULL, first_page INTEGER NOT NULL,
  end_page INTEGER NOT NULL, read INTEGER NOT NULL, written INTEGER NOT NULL, samples INTEGER);
CREATE TABLE plans(plan INTEGER PRIMARY KEY, step INTEGER NOT NULL, bucket TEXT NOT NULL, profile INTEGER, reserved_bytes INTEGER NOT NULL);
CREATE TABLE plan_reasons(plan INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_units(plan INTEGER NOT NULL, unit INTEGER NOT NULL, name TEXT NOT NULL, bytes INTEGER NOT NULL, home INTEGER,
  begin_byte INTEGER, end_byte INTEGER, PRIMARY KEY(plan, unit)) WITHOUT ROWID;
CREATE TABLE plan_moves(plan INTEGER NOT NULL, position INTEGER NOT NULL, verb TEXT NOT NULL, issue INTEGER NOT NULL,
  due INTEGER NOT NULL, unit INTEGER NOT NULL, begin_byte INTEGER, end_byte INTEGER, source INTEGER NOT NULL,
  target INTEGER NOT NULL, last_use INTEGER, next_use INTEGER, gap_ns INTEGER, transfer_ns INTEGER NOT NULL, slack_ns INTEGER NOT NULL,
  reason TEXT NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_in_place(plan INTEGER NOT NULL, op INTEGER NOT NULL, unit INTEGER NOT NULL, tier INTEGER NOT NULL,
  PRIMARY KEY(plan, op, unit)) WITHOUT ROWID;
CREATE TABLE plan_recomputations(plan INTEGER NOT NULL, position INTEGER NOT NULL, before INTEGER NOT NULL, producer INTEGER NOT NULL,
  unit INTEGER NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE plan_order(plan INTEGER NOT NULL, position INTEGER NOT NULL, op INTEGER NOT NULL, PRIMARY KEY(plan, position)) WITHOUT ROWID;
CREATE TABLE names(name INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE steps(step INTEGER PRIMARY KEY, phase TEXT NOT NULL, bucket TEXT, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, bytes_dropped INTEGER NOT NULL, stall_count INTEGER NOT NULL,
  stall_ns INTEGER NOT NULL, faults INTEGER NOT NULL, live_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
  resident_bytes INTEGER NOT NULL, resident_max_bytes INTEGER NOT NULL, ops INTEGER NOT NULL, dropped_events INTEGER NOT NULL,
  process_bytes INTEGER, far_bytes_in INTEGER NOT NULL, far_bytes_out INTEGER NOT NULL,
  moved_between_slow_tiers INTEGER NOT NULL, bytes_in_place INTEGER NOT NULL);
CREATE TABLE step_noise(step INTEGER PRIMARY KEY, elapsed_ns INTEGER NOT NULL, processor_ns INTEGER NOT NULL,
  switches INTEGER NOT NULL, watched_ns INTEGER NOT NULL, steal_ns INTEGER,
  processor_wait_ns INTEGER, memory_wait_ns INTEGER, io_wait_ns INTEGER);
CREATE TABLE step_energy(step INTEGER PRIMARY KEY, device TEXT NOT NULL, millijoules INTEGER NOT NULL, watched_ns INTEGER NOT NULL);
CREATE TABLE op_times(step INTEGER NOT NULL, op INTEGER NOT NULL, name INTEGER NOT NULL, began_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL, resident_bytes INTEGER, live_bytes INTEGER, stream INTEGER, PRIMARY KEY(step, op)) WITHOUT ROWID;
CREATE TABLE moves(step INTEGER NOT NULL, move INTEGER NOT NULL, verb TEXT NOT NULL, cause TEXT NOT NULL, chunk INTEGER NOT NULL,
  bytes INTEGER NOT NULL, issued_ns INTEGER NOT NULL, started_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  tier INTEGER NOT NULL, PRIMARY KEY(step, move)) WITHOUT ROWID;
CREATE TABLE stalls(step INTEGER NOT NULL, stall INTEGER NOT NULL, op INTEGER NOT NULL, in_allocation INTEGER NOT NULL,
  began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, PRIMARY KEY(step, stall)) WITHOUT ROWID;
CREATE TABLE faults(step INTEGER NOT NULL, fault INTEGER NOT NULL, op INTEGER NOT NULL, chunk INTEGER NOT NULL, page INTEGER NOT NULL,
  write INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL, PRIMARY KEY(step, fault)) WITHOUT ROWID;
CREATE TABLE recomputations(step INTEGER NOT NULL, recomputation INTEGER NOT NULL, op INTEGER NOT NULL, chunk INTEGER NOT NULL,
  chunks INTEGER NOT NULL, ops INTEGER NOT NULL, began_ns INTEGER NOT NULL, ended_ns INTEGER NOT NULL,
  PRIMARY KEY(step, recomputation)) WITHOUT ROWID;
)";

// Columns that a schema added to a table of the one before it: their part of the table's statement, what stood there
// before, and how a view answers for them.
struct AddedColumns {
  std::int64_t since;
  std::string_view table, text, before, answers;
};

constexpr AddedColumns added_columns[] = {
    {8, "steps", ", bytes_in_place INTEGER NOT NULL", "", "0 AS bytes_in_place"},
    {7, "links", ", alone_bytes_per_s INTEGER NOT NULL", "", "0 AS alone_bytes_per_s"},
    {5, "op_times", ", stream INTEGER", "", "NULL AS stream"},
    {3, "steps",
     ", far_bytes_in INTEGER NOT NULL, far_bytes_out INTEGER NOT NULL,\n  moved_between_slow_tiers INTEGER NOT NULL",
     "", "0 AS far_bytes_in, 0 AS far_bytes_out, 0 AS moved_between_slow_tiers"},
    {3, "moves", "tier INTEGER NOT NULL, ", "", "1 AS tier"},
    {2, "profiles", ", tracked INTEGER NOT NULL", "",
     "EXISTS(SELECT 1 FROM main.page_accesses AS a WHERE a.profile = profiles.profile) AS tracked"},
    {2, "tensors", ", shape TEXT, site_layer TEXT, site_op TEXT", "",
     "NULL AS shape, NULL AS site_layer, NULL AS site_op"},
    {2, "page_accesses", ", samples INTEGER", "", "NULL AS samples"},
    {2, "plans", ", profile INTEGER", "", "NULL AS profile"},
    {2, "plan_units", ",\n  begin_byte INTEGER, end_byte INTEGER", "", "NULL AS begin_byte, NULL AS end_byte"},
    {2, "plan_moves",
     ", last_use INTEGER, next_use INTEGER, gap_ns INTEGER, transfer_ns INTEGER NOT NULL, slack_ns INTEGER NOT NULL,\n"
     "  reason TEXT NOT NULL",
     "", "NULL AS last_use, NULL AS next_use, NULL AS gap_ns, 0 AS transfer_ns, 0 AS slack_ns, '' AS reason"},
    {2, "steps", " phase TEXT NOT NULL, bucket TEXT,", "", "'' AS phase, NULL AS bucket"},
    {2, "steps", ",\n  process_bytes INTEGER", "", "NULL AS process_bytes"},
    {2, "op_times", ", resident_bytes INTEGER, live_bytes INTEGER, PRIMARY KEY(step, op)) WITHOUT ROWID", ")",
     "NULL AS resident_bytes, NULL AS live_bytes"},
    {2, "moves", " move INTEGER NOT NULL,", "", "rowid AS move"},
    {2, "moves", ",\n  PRIMARY KEY(step, move)) WITHOUT ROWID", ")", ""},
    {2, "stalls", " stall INTEGER NOT NULL,", "", "rowid AS stall"},
    {2, "stalls", ", PRIMARY KEY(step, stall)) WITHOUT ROWID", ")", ""},
    {2, "faults", " fault INTEGER NOT NULL,", "", "rowid AS fault"},
    {2, "faults", ", PRIMARY KEY(step, fault)) WITHOUT ROWID", ")", ""},
};

struct AddedTable {
  std::int64_t since;
  std::string_view name;
};

constexpr AddedTable added_tables[] = {
    {6, "stacks"},     {6, "tensor_stacks"}, {5, "step_energy"},  {4, "step_noise"},    {3, "recomputations"},
    {2, "notes"},      {2, "tensor_places"}, {2, "plan_reasons"}, {2, "plan_in_place"}, {2, "plan_recomputations"},
    {2, "plan_order"},
};

constexpr std::string_view create = "CREATE TABLE ", ends = ";\n";

std::size_t begin_of(std::string_view sql, std::string_view table) {
  return sql.find(std::string(create) + std::string(table) + "(");
}

}  // namespace

std::string recording_schema_sql(std::int64_t schema) {
  std::string sql = newest;
  for (const AddedColumns& each : added_columns)
    if (schema < each.since) sql.replace(sql.find(each.text, begin_of(sql, each.table)), each.text.size(), each.before);
  for (const AddedTable& each : added_tables) {
    if (schema >= each.since) continue;
    const std::size_t at = begin_of(sql, each.name);
    sql.erase(at, sql.find(ends, at) + ends.size() - at);
  }
  return sql;
}

std::string newest_views_sql(std::int64_t schema) {
  if (schema == recording_schema) return {};
  std::string sql = "PRAGMA temp_store=MEMORY;";
  std::map<std::string_view, std::string> views;  // by table: what its view answers beside the table's own columns
  for (const AddedColumns& each : added_columns)
    if (schema < each.since && !each.answers.empty()) views[each.table].append(", ").append(each.answers);
  for (const auto& [table, answers] : views)
    sql.append("CREATE TEMP VIEW ").append(table).append(" AS SELECT *" + answers + " FROM main.").append(table) += ';';
  for (const AddedTable& each : added_tables) {
    if (schema >= each.since) continue;
    const std::string_view all = newest;
    const std::size_t at = begin_of(all, each.name) + create.size();
    sql.append("CREATE TEMP TABLE ").append(all.substr(at, all.find(ends, at) + ends.size() - at));
  }
  return sql;
}

std::span<const std::string_view> recording_tables() noexcept {
  static constexpr std::string_view tables[] = {"meta",
                                                "tiers",
                                                "links",
                                                "profiles",
                                                "notes",
                                                "tensors",
                                                "tensor_places",
                                                "stacks",
                                                "tensor_stacks",
                                                "layers",
                                                "ops",
                                                "operands",
                                                "page_accesses",
                                                "plans",
                                                "plan_reasons",
                                                "plan_units",
                                                "plan_moves",
                                                "plan_in_place",
                                                "plan_recomputations",
                                                "plan_order",
                                                "names",
                                                "steps",
                                                "step_noise",
                                                "step_energy",
                                                "op_times",
                                                "moves",
                                                "stalls",
                                                "faults",
                                                "recomputations"};
  return tables;
}

}  // namespace vedette
