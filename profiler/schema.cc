// The tables. Rows that are looked up by step are kept in the order of steps (WITHOUT ROWID), so that a step of a long
// run is read without reading the run.
#include "profiler/schema.h"

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

// Schema 7 lacks a column of steps; schema 6 one of links, too; schema 5 two tables of stacks, too; schema 4 one more,
// and a column of op_times.
constexpr std::string_view column_of_8 = ", bytes_in_place INTEGER NOT NULL";
constexpr std::string_view column_of_7 = ", alone_bytes_per_s INTEGER NOT NULL";
constexpr std::string_view tables_of_6[] = {"CREATE TABLE stacks(", "CREATE TABLE tensor_stacks("};
constexpr std::string_view table_of_5 = "CREATE TABLE step_energy(", column_of_5 = ", stream INTEGER";

void leave_out(std::string& sql, std::string_view table) {
  const std::size_t at = sql.find(table);
  sql.erase(at, sql.find('\n', at) + 1 - at);
}

}  // namespace

std::string recording_schema_sql(std::int64_t schema) {
  std::string sql = newest;
  if (schema < 8) sql.erase(sql.find(column_of_8), column_of_8.size());
  if (schema < 7) sql.erase(sql.find(column_of_7), column_of_7.size());
  if (schema < 6)
    for (const std::string_view table : tables_of_6) leave_out(sql, table);
  if (schema < 5) {
    leave_out(sql, table_of_5);
    sql.erase(sql.find(column_of_5), column_of_5.size());
  }
  return sql;
}

std::string newest_views_sql(std::int64_t schema) {
  if (schema == recording_schema) return {};
  std::string sql =
      "PRAGMA temp_store=MEMORY;"
      "CREATE TEMP VIEW steps AS SELECT *, 0 AS bytes_in_place FROM main.steps;";
  if (schema < 7) sql += "CREATE TEMP VIEW links AS SELECT *, 0 AS alone_bytes_per_s FROM main.links;";
  if (schema < 6)
    sql +=
        "CREATE TEMP VIEW stacks AS SELECT 0 AS stack, 0 AS position, '' AS frame WHERE 0;"
        "CREATE TEMP VIEW tensor_stacks AS SELECT 0 AS profile, 0 AS tensor, 0 AS stack WHERE 0;";
  if (schema < 5)
    sql +=
        "CREATE TEMP VIEW op_times AS SELECT *, NULL AS stream FROM main.op_times;"
        "CREATE TEMP VIEW step_energy AS SELECT 0 AS step, '' AS device, 0 AS millijoules, 0 AS watched_ns WHERE 0;";
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
