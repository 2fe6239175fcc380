// Queries on a recording. Page frequencies are a sweep over the boundaries of the recorded ranges, so their cost grows
// with the ranges, not with the pages.
#include "profiler/recording.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "profiler/gpu_bytes.h"
#include "profiler/tables.h"

namespace vedette {

namespace {

template <class T>
Result<T> checked(Database& database, T value) {
  if (database.failure()) return *database.failure();
  return value;
}

std::uint64_t natural(const Statement& statement, int column) {
  return static_cast<std::uint64_t>(statement.integer(column));
}

std::string meta(Database& database, std::string_view key) {
  Statement ask(database, "SELECT value FROM meta WHERE key = ?");
  ask.ask(key);
  return ask.row() ? ask.text(0) : std::string();
}

std::uint64_t meta_number(Database& database, std::string_view key) {
  Statement ask(database, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?");
  ask.ask(key);
  return ask.row() ? natural(ask, 0) : 0;
}

std::int64_t pragma(Database& database, const char* sql) {
  Statement ask(database, sql);
  ask.ask();
  return ask.row() ? ask.integer(0) : 0;
}

struct Delta {  // changes at a page boundary
  std::int64_t ticks = 0, reads = 0, writes = 0;
};

// Ranges of one layer and tensor become disjoint ranges with counts.
void sweep(std::int64_t layer, TensorIndex tensor, const std::map<std::uint64_t, Delta>& boundaries,
           std::vector<PageFrequency>& out) {
  Delta level;
  std::uint64_t begin = 0;
  const auto close = [&](std::uint64_t end) {
    if (level.ticks == 0 || begin == end) return;
    out.push_back({.layer = layer,
                   .tensor = tensor,
                   .pages = {begin, end},
                   .ticks = static_cast<std::uint32_t>(level.ticks),
                   .reads = static_cast<std::uint32_t>(level.reads),
                   .writes = static_cast<std::uint32_t>(level.writes)});
  };
  for (const auto& [page, delta] : boundaries) {
    if (delta.ticks == 0 && delta.reads == 0 && delta.writes == 0) continue;  // one range ends where its equal begins
    close(page);
    level = {level.ticks + delta.ticks, level.reads + delta.reads, level.writes + delta.writes};
    begin = page;
  }
}

// Both give layer, tensor, first_page, end_page, read, written: one row per tick and range.
constexpr const char* tracked_ranges =
    "SELECT IFNULL(o.layer, -1) AS l, a.tensor AS t, first_page, end_page, read, written"
    " FROM page_accesses a JOIN ops o USING(profile, op) WHERE profile = ?1 ORDER BY l, t";
constexpr const char* operand_ranges =
    "SELECT IFNULL(o.layer, -1) AS l, a.tensor AS t, 0, (t.bytes + ?2 - 1) / ?2, MAX(role = 'read'), MAX(role = "
    "'write')"
    " FROM operands a JOIN ops o USING(profile, op) JOIN tensors t USING(profile, tensor)"
    " WHERE profile = ?1 AND role <> 'free' GROUP BY op, a.tensor ORDER BY l, a.tensor";

// of a profile; a step of ResNet-18 with a tick an op has a hundred thousand
constexpr std::uint64_t most_ranges = 5'000'000;

using TableTexts = std::map<std::string, std::string>;

std::string on_one_line(std::string_view text) {  // lines were broken elsewhere in other schemas
  std::string words;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space || (!words.empty() && words.back() != ' ')) words += space ? ' ' : c;
  }
  return words;
}

TableTexts tables_of(Database& database) {
  TableTexts tables;
  Statement ask(database, "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0");
  ask.ask();
  while (ask.row()) tables[ask.text(0)] = on_one_line(ask.text(1));
  return tables;
}

// As SQLite writes them down: made once in memory and read.
Result<TableTexts> tables_of_schema(std::int64_t schema) {
  auto model = Database::open(":memory:", Database::Mode::create);
  if (!model) return model.error();
  model->run(recording_schema_sql(schema).c_str());
  return checked(*model, tables_of(*model));
}

// A file that says it is a recording must have exactly a recording's tables; others beside them do no harm.
std::optional<Error> unlike_the_schema(Database& database, const std::string& path) {
  const std::int64_t schema = pragma(database, "PRAGMA user_version");
  const Result<TableTexts> expected = tables_of_schema(schema);
  if (!expected) return expected.error();
  const TableTexts found = tables_of(database);
  if (database.failure()) return database.failure();
  for (const auto& [name, text] : *expected) {
    const auto table = found.find(name);
    if (table == found.end()) return Error{Cause::malformed_input, path + " is damaged: it lacks the table " + name};
    if (table->second != text)
      return Error{Cause::malformed_input,
                   path + " is damaged: its table " + name + " is not that of schema " + std::to_string(schema)};
  }
  return std::nullopt;
}

// A file that SQLite made and cannot read is one that was cut: a copy that ended early, for instance.
Error why_no_recording(const std::string& path, const Database& database) {
  if (database.failure() && begins_as_recording(path))
    return {Cause::malformed_input,
            path + " is cut short or damaged; copy it anew, with the -wal file beside it if there is one"};
  std::error_code unknown;
  const bool empty = std::filesystem::file_size(path, unknown) == 0;
  return {Cause::malformed_input, path + (empty ? " is empty" : " is not a recording of vedette")};
}

}  // namespace

bool begins_as_recording(const std::string& path) {
  std::string head(sqlite_files_begin.size(), '\0');
  std::ifstream(path, std::ios::binary).read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == sqlite_files_begin;
}

Result<Database> open_recording(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) return Error{Cause::system, path + ": no such file"};
  if (std::filesystem::is_directory(path, unknown))
    return Error{Cause::system, path + " is a directory; name a recording in it"};
  auto database = Database::open(path, Database::Mode::read);
  if (!database) return database.error();
  if (pragma(*database, "PRAGMA application_id") != recording_application_id) return why_no_recording(path, *database);
  const std::int64_t schema = pragma(*database, "PRAGMA user_version");
  if (schema < oldest_recording_schema || schema > recording_schema) {
    return Error{Cause::unsupported, path + " has schema " + std::to_string(schema) +
                                         ", and this program reads schemas " + std::to_string(oldest_recording_schema) +
                                         " to " + std::to_string(recording_schema) + "; use the vedette that wrote it" +
                                         (schema < recording_schema ? ", or record anew" : ", or a newer one")};
  }
  if (auto foreign = unlike_the_schema(*database, path)) return *std::move(foreign);
  database->run(newest_views_sql(schema).c_str());
  return database;
}

GpuBytes gpu_bytes_of(Database& recording) {
  GpuBytes gpu;
  for (const GpuBytesField& each : gpu_bytes_fields) gpu.*each.bytes = {meta_number(recording, each.key)};
  return gpu;
}

Origin origin_of(Database& recording) {
  return {.imported = meta(recording, "imported"),
          .assumed = meta(recording, "assumed"),
          .started = meta(recording, "started"),
          .command = meta(recording, "command"),
          .vedette = meta(recording, "vedette"),
          .commit = meta(recording, "commit"),
          .libtorch = meta(recording, "libtorch"),
          .cpu = meta(recording, "cpu"),
          .kernel = meta(recording, "kernel"),
          .mechanism = meta(recording, "mechanism"),
          .cores = meta_number(recording, "cores"),
          .memory = {meta_number(recording, "memory_bytes")},
          .sizes = {.changes = meta_number(recording, "budget_changes"),
                    .least = {meta_number(recording, "least_budget_bytes")},
                    .most = {meta_number(recording, "most_budget_bytes")},
                    .last = {meta_number(recording, "last_budget_bytes")}},
          .tables = {.rows_on_device = meta_number(recording, "table_rows_on_device"),
                     .rows_on_host = meta_number(recording, "table_rows_on_host"),
                     .moves = meta_number(recording, "table_moves"),
                     .device_bytes = meta_number(recording, "table_device_bytes"),
                     .host_bytes = meta_number(recording, "table_host_bytes")},
          .gpu = gpu_bytes_of(recording),
          .disk_writes = {.bound = {meta_number(recording, "max_writes_bytes_per_s")},
                          .without = {meta_number(recording, "disk_writes_bytes_per_s")}},
          .schema = pragma(recording, "PRAGMA user_version")};
}

Result<Recording> Recording::open(const std::string& path) {
  auto database = open_recording(path);
  if (!database) return database.error();
  return Recording(std::move(*database));
}

Result<Headline> Recording::headline() {
  Headline h;
  h.program = meta(database_, "program");
  h.policy = meta(database_, "policy");
  h.budget = {meta_number(database_, "budget_bytes")};
  h.chunk = {meta_number(database_, "chunk_bytes")};
  Statement totals(
      database_,
      "SELECT COUNT(*), IFNULL(MAX(peak_bytes), 0), IFNULL(MAX(resident_max_bytes), 0), IFNULL(SUM(bytes_in), 0),"
      " IFNULL(SUM(bytes_out), 0), IFNULL(SUM(bytes_dropped), 0), IFNULL(SUM(stall_count), 0),"
      " IFNULL(SUM(stall_ns), 0), IFNULL(SUM(faults), 0), IFNULL(MAX(dropped_events), 0),"
      " IFNULL(SUM(far_bytes_in), 0), IFNULL(SUM(far_bytes_out), 0), IFNULL(SUM(moved_between_slow_tiers), 0),"
      " IFNULL(SUM(bytes_in_place), 0)"
      " FROM steps");
  totals.ask();
  if (totals.row()) {
    h.steps = natural(totals, 0);
    h.peak = {natural(totals, 1)};
    h.resident_max = {natural(totals, 2)};
    h.moved = {.in = {natural(totals, 3)},
               .out = {natural(totals, 4)},
               .dropped = {natural(totals, 5)},
               .in_place = {natural(totals, 13)}};
    h.stall_count = natural(totals, 6);
    h.stall_time = {totals.integer(7)};
    h.faults = natural(totals, 8);
    h.dropped_events = std::max(natural(totals, 9), meta_number(database_, "dropped_events"));
    h.far = {.in = {natural(totals, 10)}, .out = {natural(totals, 11)}, .between = {natural(totals, 12)}};
  }
  Statement median(database_,
                   "WITH usual AS (SELECT ended_ns - began_ns AS t FROM steps WHERE phase = 'planned'"
                   " OR NOT EXISTS (SELECT 1 FROM steps WHERE phase = 'planned'))"
                   " SELECT t FROM usual ORDER BY t LIMIT 1 OFFSET (SELECT (COUNT(*) - 1) / 2 FROM usual)");
  median.ask();
  if (median.row()) h.median_step = {median.integer(0)};
  h.profiles = static_cast<std::uint64_t>(pragma(database_, "SELECT COUNT(*) FROM profiles"));
  h.plans = static_cast<std::uint64_t>(pragma(database_, "SELECT COUNT(*) FROM plans"));
  h.moves = static_cast<std::uint64_t>(pragma(database_, "SELECT COUNT(*) FROM moves"));
  h.op_times = static_cast<std::uint64_t>(pragma(database_, "SELECT COUNT(*) FROM op_times"));
  h.origin = origin_of(database_);
  h.complete = meta(database_, "complete") == "1";
  read_more(h);
  return checked(database_, std::move(h));
}

void Recording::read_more(Headline& h) {
  Statement phases(database_,
                   "SELECT SUM(phase = 'warm-up'), SUM(phase = 'profiling'), SUM(phase = 'planned') FROM steps");
  phases.ask();
  if (phases.row())
    h.by_phase = {.warm_up = natural(phases, 0), .profiling = natural(phases, 1), .planned = natural(phases, 2)};
  while (phases.row()) {
  }
  Statement tiers(database_, "SELECT name, capacity_bytes, addressable FROM tiers ORDER BY tier LIMIT 16");
  for (tiers.ask(); tiers.row();)
    h.tiers.push_back({.name = tiers.text(0), .capacity = {natural(tiers, 1)}, .addressable = tiers.integer(2) != 0});
  Statement reasons(
      database_, "SELECT text FROM plan_reasons WHERE plan = (SELECT MAX(plan) FROM plans) ORDER BY position LIMIT 20");
  for (reasons.ask(); reasons.row();) h.reasons.push_back(reasons.text(0));
}

Result<EnergyTotal> Recording::energy() {
  EnergyTotal total;
  Statement ask(database_, "SELECT COUNT(*), SUM(millijoules), MAX(device) FROM step_energy");
  ask.ask();
  if (ask.row()) total = {.steps = natural(ask, 0), .millijoules = natural(ask, 1), .device = ask.text(2)};
  return checked(database_, std::move(total));
}

Result<std::vector<ProfileInfo>> Recording::profiles() {
  std::vector<ProfileInfo> found;
  Statement ask(database_,
                "SELECT profile, step, bucket, page_bytes,"
                " EXISTS(SELECT 1 FROM page_accesses a WHERE a.profile = p.profile) FROM profiles p ORDER BY profile");
  ask.ask();
  while (ask.row()) {
    found.push_back({.profile = ask.integer(0),
                     .step = natural(ask, 1),
                     .bucket = ask.text(2),
                     .page_bytes = {natural(ask, 3)},
                     .tracked = ask.integer(4) != 0});
  }
  return checked(database_, std::move(found));
}

Result<std::vector<PageFrequency>> Recording::page_frequencies(const ProfileInfo& profile) {
  std::vector<PageFrequency> found;
  Statement ask(database_, profile.tracked ? tracked_ranges : operand_ranges);
  if (profile.tracked)
    ask.ask(profile.profile);
  else
    ask.ask(profile.profile, profile.page_bytes.value);
  std::pair<std::int64_t, std::int64_t> current{-2, -1};
  std::map<std::uint64_t, Delta> boundaries;
  const auto finish = [&] {
    sweep(current.first, {static_cast<std::uint32_t>(current.second)}, boundaries, found);
    boundaries.clear();
  };
  std::uint64_t ranges = 0;
  while (ranges <= most_ranges && ask.row()) {
    ++ranges;
    const std::pair key{ask.integer(0), ask.integer(1)};
    if (key != current) finish();
    current = key;
    // whatever a damaged file holds
    const std::int64_t read = ask.integer(4) != 0 ? 1 : 0, written = ask.integer(5) != 0 ? 1 : 0;
    Delta& begin = boundaries[natural(ask, 2)];
    begin = {begin.ticks + 1, begin.reads + read, begin.writes + written};
    Delta& end = boundaries[natural(ask, 3)];
    end = {end.ticks - 1, end.reads - read, end.writes - written};
  }
  finish();
  if (ranges > most_ranges) {
    return Error{Cause::unsupported, "profile " + std::to_string(profile.profile) + " has more than " +
                                         std::to_string(most_ranges) +
                                         " ranges of pages: too many to sum up in memory"};
  }
  return checked(database_, std::move(found));
}

Result<std::vector<LayerTouches>> Recording::layers_by_pages(const ProfileInfo& profile) {
  auto frequencies = page_frequencies(profile);
  if (!frequencies) return frequencies.error();
  std::map<std::int64_t, LayerTouches> layers;
  for (const PageFrequency& f : *frequencies) {
    LayerTouches& layer = layers[f.layer];
    const std::uint64_t pages = f.pages.end - f.pages.begin;
    layer.pages += pages;
    layer.touches += pages * f.ticks;
    if (f.writes > 0) layer.written_pages += pages;
    layer.hottest = std::max(layer.hottest, f.ticks);
  }
  Statement name(database_, "SELECT name, phase FROM layers WHERE profile = ? AND layer = ?");
  std::vector<LayerTouches> sorted;
  for (auto& [number, layer] : layers) {
    name.ask(profile.profile, number);
    if (name.row()) layer.name = name.text(0), layer.phase = name.text(1);
    sorted.push_back(std::move(layer));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.pages > b.pages; });
  return checked(database_, std::move(sorted));
}

}  // namespace vedette
