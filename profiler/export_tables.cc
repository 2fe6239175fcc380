// The exports that are tables of text: minimalloc's CSV, MQSim's requests, and each table of the recording as CSV.
#include <algorithm>

#include "model/liveness.h"
#include "profiler/export_parts.h"
#include "profiler/schema.h"

namespace vedette::exports {

// id,lower,upper,size (github.com/google/minimalloc, README): lives are [lower, upper), here in ops. Workspaces live
// for their op.
Result<void> to_minimalloc(const ExportSource& source, std::ostream& out) {
  const auto profile = profile_of(source.run);
  if (!profile) return profile.error();
  const Trace& trace = (*profile)->trace;
  out << "id,lower,upper,size\n";
  const auto life = lives(trace);
  for (std::size_t t = 0; t < trace.tensors.size(); ++t) {
    if (life[t].begin == life[t].end || trace.tensors[t].bytes.value == 0) continue;
    out << 't' << t << ',' << life[t].begin.value << ',' << life[t].end.value << ',' << trace.tensors[t].bytes.value
        << '\n';
  }
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    if (trace.ops[i].workspace.value > 0)
      out << 'w' << i << ',' << i << ',' << i + 1 << ',' << trace.ops[i].workspace.value << '\n';
  }
  return {};
}

// arrival (ns), device, first sector, sectors, type (0 write, 1 read) (github.com/CMU-SAFARI/MQSim, README), by
// arrival.
Result<void> to_mqsim(const ExportSource& source, std::ostream& out) {
  constexpr std::uint64_t sector = 512;
  const std::uint64_t chunk = source.run.chunk.value;
  Statement first(source.database, "SELECT MIN(issued_ns) FROM moves WHERE verb IN ('fetch', 'evict')");
  first.ask();
  if (!first.row() || first.is_null(0))
    return Error{Cause::malformed_input, source.run.path + " has no moves, so its slow tier had no requests"};
  const std::int64_t began = first.integer(0);
  Statement moves(source.database,
                  "SELECT issued_ns - ?1, chunk, bytes, verb = 'fetch' FROM moves WHERE verb IN ('fetch', 'evict') "
                  "ORDER BY issued_ns, step, move");
  for (moves.ask(began); moves.row();) {
    const auto at = static_cast<std::uint64_t>(moves.integer(1)), bytes = static_cast<std::uint64_t>(moves.integer(2));
    out << moves.integer(0) << " 0 " << at * (chunk / sector) << ' ' << (bytes + sector - 1) / sector << ' '
        << moves.integer(3) << '\n';
  }
  return {};
}

namespace {

// The rows of a table, and the names of what its numbers mean: an op's device, a move's link.
std::string rows_of(std::string_view table) {
  const std::string link = "(SELECT s.name || ' -> ' || t.name FROM tiers s, tiers t WHERE ";
  if (table == "op_times") return "SELECT *, (SELECT name FROM tiers WHERE tier = 0) AS device FROM op_times";
  if (table == "moves")
    return "SELECT *, " + link +
           "verb <> 'drop' AND s.tier = CASE verb WHEN 'fetch' THEN moves.tier ELSE 0 END"
           " AND t.tier = CASE verb WHEN 'fetch' THEN 0 ELSE moves.tier END) AS link FROM moves";
  if (table == "plan_moves")
    return "SELECT *, " + link + "s.tier = source AND t.tier = target) AS link FROM plan_moves";
  return "SELECT * FROM " + std::string(table);
}

}  // namespace

Result<void> to_csv(const ExportSource& source, std::ostream& out) {
  const auto tables = recording_tables();
  const auto found = std::find(tables.begin(), tables.end(), source.options.table);
  if (found == tables.end()) {
    std::string known;
    for (const std::string_view each : tables) known.append(known.empty() ? "" : ", ").append(each);
    return Error{Cause::unsupported, "there is no table '" + source.options.table + "'; there are: " + known};
  }
  Statement rows(source.database, rows_of(*found));  // a name of our own list
  rows.ask();
  const int columns = rows.columns();
  for (int i = 0; i < columns; ++i) out << (i > 0 ? "," : "") << csv_field(rows.column_name(i));
  out << "\r\n";
  while (rows.row()) {
    for (int i = 0; i < columns; ++i) out << (i > 0 ? "," : "") << csv_field(rows.text(i));
    out << "\r\n";
  }
  return {};
}

}  // namespace vedette::exports
