// `vedette ask RUN NAME`: one question to a recording, answered as a table or as JSON. And `vedette check RUN`: whether
// a recorded run kept its promises, as a status.
#include "cli/ask.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "cli/lab.h"
#include "cli/nearest.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "profiler/report/report.h"
#include "profiler/sqlite.h"

namespace vedette::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AskOptions {
  std::string path, question, tensor, sql;
  std::vector<std::string> groups;
  std::size_t limit = 10;
  bool json = false;
};

struct Table {  // rows of equal keys; the first key names the row
  std::vector<Json> rows;
  std::string empty;  // the sentence where there are none

  bool may_be_grouped = false;  // rows are of tensors
};

struct Asked {
  report::Run run;
  report::Report figures;
  const Trace* trace = nullptr;  // of the shown profile
};

Asked load(const std::string& path) {
  Asked asked{.run = value_of(path, report::load_run(path))};
  asked.figures = report::analyse(asked.run, {});
  if (const report::Profile* const profile = asked.run.shown_profile()) asked.trace = &profile->trace;
  return asked;
}

const Trace& profiled(const Asked& asked) {
  if (asked.trace != nullptr) return *asked.trace;
  throw malformed(asked.run.path + " has no profiled step; record three steps or more");
}

Json row_of(const report::TensorRow& tensor) {
  return {{"tensor", tensor.name},
          {"bytes", tensor.bytes.value},
          {"role", tensor.role},
          {"persistent", tensor.persistent},
          {"reads", tensor.reads},
          {"writes", tensor.writes},
          {"moves", tensor.fetches + tensor.evictions},
          {"gap_ms", ms(tensor.longest_gap)}};
}

template <class Rank, class Wanted>
Table tensors(const Asked& asked, Rank rank, Wanted wanted, std::string empty) {
  profiled(asked);
  std::vector<const report::TensorRow*> found;
  for (const report::TensorRow& tensor : asked.figures.tensors)
    if (wanted(tensor)) found.push_back(&tensor);
  std::stable_sort(found.begin(), found.end(), [&](const auto* a, const auto* b) { return rank(*a) > rank(*b); });
  Table table{.empty = std::move(empty), .may_be_grouped = true};
  for (const report::TensorRow* const tensor : found) table.rows.push_back(row_of(*tensor));
  return table;
}

double times_bytes(std::uint64_t times, Bytes bytes) {
  return static_cast<double>(times) * static_cast<double>(bytes.value);
}

Table hottest(const Asked& asked, const AskOptions&) {
  return tensors(
      asked, [](const report::TensorRow& t) { return times_bytes(t.reads + t.writes, t.bytes); },
      [](const report::TensorRow& t) { return t.reads + t.writes > 0; }, "no tensor was used");
}

Table coldest(const Asked& asked, const AskOptions&) {
  return tensors(
      asked, [](const report::TensorRow& t) { return ms(t.longest_gap) * static_cast<double>(t.bytes.value); },
      [](const report::TensorRow& t) { return t.longest_gap.value > 0; }, "no tensor is left alone between two uses");
}

Table moved_most(const Asked& asked, const AskOptions&) {
  return tensors(
      asked, [](const report::TensorRow& t) { return times_bytes(t.fetches + t.evictions, {1}); },
      [](const report::TensorRow& t) { return t.fetches + t.evictions > 0; }, "nothing moved in the shown step");
}

Table never_used(const Asked& asked, const AskOptions&) {
  return tensors(
      asked, [](const report::TensorRow& t) { return static_cast<double>(t.bytes.value); },
      [](const report::TensorRow& t) { return t.reads + t.writes == 0; }, "every tensor was used");
}

Table peak(const Asked& asked, const AskOptions&) {
  const Trace& trace = profiled(asked);
  std::uint64_t most = 0;
  std::uint32_t at = 0;
  const auto lives = [](const report::TensorRow& t, std::uint32_t op) {
    return t.persistent || (t.life && t.life->begin <= op && op < t.life->end);
  };
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    std::uint64_t now = trace.ops[op].workspace.value;
    for (const report::TensorRow& tensor : asked.figures.tensors)
      if (lives(tensor, op)) now += tensor.bytes.value;
    if (now > most) most = now, at = op;
  }
  Table table = tensors(
      asked, [](const report::TensorRow& t) { return static_cast<double>(t.bytes.value); },
      [&](const report::TensorRow& t) { return lives(t, at); }, "no tensor lives");
  for (Json& row : table.rows) row["at_op"] = trace.ops.empty() ? "" : trace.ops[at].name;
  return table;
}

Table stalls(const Asked& asked, const AskOptions&) {
  Table table{.empty = "the shown step waited for nothing"};
  std::vector<std::pair<Nanoseconds, Json>> rows;
  for (const report::StepTimeline& step : asked.figures.timeline.steps) {
    if (asked.run.shown_step() == nullptr || step.step != asked.run.shown_step()->step) continue;
    for (const report::TimelineStall& stall : step.stalls) {
      const Nanoseconds time = stall.time.end - stall.time.begin;
      rows.emplace_back(time, Json{{"op", stall.op < step.ops.size() ? step.ops[stall.op].name : ""},
                                   {"number", stall.op},
                                   {"ms", ms(time)},
                                   {"in_allocation", stall.in_allocation},
                                   {"why", stall.why},
                                   {"remedy", stall.remedy}});
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [time, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

Table late(const Asked& asked, const AskOptions&) {
  Table table{.empty = "no planned fetch of the shown step came late"};
  for (const report::PlanMoveRow& move : asked.figures.plan.moves) {
    if (move.fate != "late") continue;
    table.rows.push_back({{"tensor", move.unit},
                          {"bytes", move.bytes.value},
                          {"issued_at", move.issue},
                          {"due_at", move.due},
                          {"late_ms", move.lead ? -ms(*move.lead) : 0},
                          {"reason", move.reason}});
  }
  return table;
}

Table pages(const Asked& asked, const AskOptions& options) {
  const Trace& trace = profiled(asked);
  if (options.tensor.empty()) throw malformed("pages is of one tensor: vedette ask RUN pages NAME");
  std::vector<std::string> known;
  std::optional<std::uint32_t> wanted;
  for (const report::TensorRow& tensor : asked.figures.tensors) {
    known.push_back(tensor.name);
    if (tensor.name == options.tensor || std::to_string(tensor.tensor) == options.tensor) wanted = tensor.tensor;
  }
  if (!wanted)
    throw malformed("there is no tensor '" + options.tensor + "'" + did_you_mean(options.tensor, known) +
                    "; `vedette ask RUN hottest` names some");
  Table table{.empty = "no page of it was tracked; record with profile = ops"};
  const std::uint64_t page = std::max<std::uint64_t>(1, trace.page_bytes.value);
  const std::uint64_t all = (trace.tensors[*wanted].bytes.value + page - 1) / page;
  for (std::size_t i = 0; i < trace.pages.size();) {
    const OpIndex op = trace.pages[i].op;
    std::uint64_t touched = 0, written = 0;
    for (; i < trace.pages.size() && trace.pages[i].op == op; ++i) {
      const PageAccess& access = trace.pages[i];
      if (access.tensor.value != *wanted) continue;
      touched += access.pages.end - access.pages.begin;
      if (access.written) written += access.pages.end - access.pages.begin;
    }
    if (touched > 0)
      table.rows.push_back({{"op", trace.ops[op.value].name},
                            {"number", op.value},
                            {"pages", touched},
                            {"of", all},
                            {"written", written}});
  }
  return table;
}

struct Question {
  const char *name, *asks;
  Table (*answer)(const Asked&, const AskOptions&);
};
constexpr Question questions[] = {{"hottest", "tensors by the bytes that ops use of them in a step", hottest},
                                  {"coldest", "tensors by bytes and the longest time between two uses", coldest},
                                  {"peak", "tensors that live where most bytes do", peak},
                                  {"moved-most", "tensors by the moves of their chunks in the shown step", moved_most},
                                  {"never-used", "tensors that no op of the step used", never_used},
                                  {"stalls", "what ops of the shown step waited for, and what would help", stalls},
                                  {"late", "planned fetches that came late", late},
                                  {"pages", "the pages of one tensor that each op touched", pages}};

// Rows of tensors as sums by the first of REGEX=NAME whose expression the tensor's name has.
Table grouped(const Table& table, const std::vector<std::string>& groups) {
  if (!table.may_be_grouped) throw malformed("--group sums rows of tensors; this question has none");
  std::vector<std::pair<std::regex, std::string>> patterns;
  for (const std::string& group : groups) {
    const std::size_t at = group.rfind('=');
    if (at == std::string::npos || at == 0 || at + 1 == group.size())
      throw malformed("--group " + group + " is no REGEX=NAME; write 'exp_avg=moments'");
    try {
      patterns.emplace_back(std::regex(group.substr(0, at)), group.substr(at + 1));
    } catch (const std::regex_error&) {
      throw malformed("--group " + group + ": '" + group.substr(0, at) + "' is no regular expression");
    }
  }
  patterns.emplace_back(std::regex(".*"), "others");
  std::vector<Json> sums;
  for (const auto& [pattern, name] : patterns)
    sums.push_back({{"group", name}, {"tensors", 0}, {"bytes", 0}, {"reads", 0}, {"writes", 0}, {"moves", 0}});
  for (const Json& row : table.rows)
    for (std::size_t p = 0; p < patterns.size(); ++p) {
      if (!std::regex_search(row["tensor"].get<std::string>(), patterns[p].first)) continue;
      sums[p]["tensors"] = sums[p]["tensors"].get<std::uint64_t>() + 1;
      for (const char* const key : {"bytes", "reads", "writes", "moves"})
        sums[p][key] = sums[p][key].get<std::uint64_t>() + row[key].get<std::uint64_t>();
      break;
    }
  std::erase_if(sums, [](const Json& sum) { return sum["tensors"] == 0; });
  return {.rows = std::move(sums), .empty = table.empty};
}

Json number_or_text(const std::string& text) {
  std::int64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc{} && end == text.data() + text.size() ? Json(number) : Json(text);
}

Table by_sql(const AskOptions& options) {
  Database database = value_of(options.path, Database::open(options.path, Database::Mode::read));
  database.run("PRAGMA query_only = 1");  // a recording whose run was killed is mended as it opens, and not later
  Statement statement(database, options.sql);
  Table table{.empty = "no row"};
  while (!database.failure() && statement.row()) {
    Json row = Json::object();
    for (int c = 0; c < statement.columns(); ++c)
      row[statement.column_name(c)] = statement.is_null(c) ? Json() : number_or_text(statement.text(c));
    table.rows.push_back(std::move(row));
  }
  if (const auto& failure = database.failure())
    throw malformed("--sql: " + failure->message + " (profiler/FORMAT.md has the tables)");
  return table;
}

std::string cell(const std::string& key, const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return fmt::format("{:.3f}", value.get<double>());
  return key == "bytes" ? readable({value.get<std::uint64_t>()}) : value.dump();
}

void print_table(const Table& table, std::size_t limit) {
  if (table.rows.empty()) return print("{}\n", table.empty);
  constexpr std::size_t widest = 60;
  std::vector<std::vector<std::string>> lines(1);
  for (const auto& [key, value] : table.rows.front().items()) lines[0].push_back(key);
  for (std::size_t r = 0; r < std::min(limit, table.rows.size()); ++r) {
    auto& line = lines.emplace_back();
    for (const auto& [key, value] : table.rows[r].items()) line.push_back(cell(key, value));
  }
  std::vector<std::size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], std::min(widest, line[c].size()));
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t c = 0; c < line.size(); ++c)
      text += c + 1 == line.size() ? line[c] : fmt::format("{:<{}}  ", line[c], widths[c]);
    print("{}\n", text);
  }
  if (table.rows.size() > limit) print("... and {} more (--limit)\n", table.rows.size() - limit);
}

void ask(const AskOptions& options) {
  Table table;
  if (!options.sql.empty()) {
    if (!options.question.empty())
      throw malformed("--sql is a question of its own; leave '" + options.question + "' out");
    if (!options.groups.empty()) throw malformed("--sql groups its rows itself; leave --group out");
    table = by_sql(options);
  } else {
    const auto* const found = std::find_if(std::begin(questions), std::end(questions),
                                           [&](const Question& q) { return q.name == options.question; });
    if (found == std::end(questions)) {
      std::vector<std::string> known;
      for (const Question& question : questions) known.emplace_back(question.name);
      throw malformed(fmt::format("there is no question '{}'{}; there are {}", options.question,
                                  did_you_mean(options.question, known), fmt::join(known, ", ")));
    }
    table = found->answer(load(options.path), options);
    if (!options.groups.empty()) table = grouped(table, options.groups);
  }
  if (!options.json) return print_table(table, options.limit);
  table.rows.resize(std::min(options.limit, table.rows.size()));
  print_data(Json(table.rows).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

double percent_in(const std::string& words) {
  char* end = nullptr;
  const double value = std::strtod(words.c_str(), &end);
  if (end != words.c_str() && std::string(end) == "%" && value >= 0 && value <= 100) return value;
  throw malformed("--stall " + words + " is no share of a step; write 5%");
}

}  // namespace

void check_run(const std::string& path, const RunChecks& checks) {
  const Asked asked = load(path);
  const report::Headline& head = asked.figures.headline;
  std::vector<std::string> broken;
  if (!checks.peak.empty()) {
    const Bytes most = read_size(checks.peak, profiled(asked));
    if (head.peak > most)
      broken.push_back(fmt::format("its peak is {}, above {}", readable(head.peak), readable(most)));
  }
  if (!checks.stall.empty() && 100 * head.stall_share > percent_in(checks.stall))
    broken.push_back(
        fmt::format("its steps wait {:.1f} % of their time, above {}", 100 * head.stall_share, checks.stall));
  const bool is_planned = asked.run.shown_step() != nullptr && asked.run.shown_step()->phase == "planned";
  if (checks.planned && !is_planned) broken.emplace_back("no step ran by a plan");
  if (!broken.empty()) throw Failure({Cause::infeasible, path + ": " + fmt::format("{}", fmt::join(broken, "; "))});
  print("{}: {} at its peak, {:.1f} % of a step waits, {}\n", path, readable(head.peak), 100 * head.stall_share,
        is_planned ? "planned" : "not planned");
}

void add_ask(CLI::App& app) {
  auto* verb = app.add_subcommand("ask", "One question to a recording: its hottest tensors, its stalls, ...");
  const auto options = std::make_shared<AskOptions>();
  std::string words;
  for (const Question& question : questions)
    words += std::string(words.empty() ? "" : "; ") + question.name + ": " + question.asks;
  verb->add_option("run", options->path, "a recording")->required();
  verb->add_option("question", options->question, words);
  verb->add_option("tensor", options->tensor, "of the question pages: a tensor's name or number");
  verb->add_option("--limit", options->limit, "rows at most")->capture_default_str()->check(CLI::Range(1, 1'000'000));
  verb->add_option("--group", options->groups, "sums of tensors whose names have an expression: 'exp_avg=moments'");
  verb->add_option("--sql", options->sql, "a query of your own, read only (profiler/FORMAT.md has the tables)");
  verb->add_flag("--json", options->json, "JSON instead of a table");
  verb->callback([options] {
    if (options->question.empty() && options->sql.empty()) throw CLI::RequiredError("a question, or --sql,");
    ask(*options);
  });
}

}  // namespace vedette::cli
