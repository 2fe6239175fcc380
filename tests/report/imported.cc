// Reports on what was imported: what nobody measured is not known, and the page says so without a verdict.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "profiler/imports.h"
#include "profiler/report/report.h"
#include "report/hand_made.h"
#include "support/command.h"

namespace vedette::report::imported_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* damon =
    R"([{"target_id": 42, "snapshots": [
{"start_time": 100000000, "end_time": 200000000, "regions": [{"start": 4096, "end": 40960, "nr_accesses": 3}]},
{"start_time": 200000000, "end_time": 300000000, "regions": [{"start": 4096, "end": 40960, "nr_accesses": 9}]}]}])";

// Forty layers that take turns between forward and backward.
std::string alternating_trace() {
  Trace trace{.name = "alternating", .source = "test", .device = "cpu"};
  trace.tensors = {{.name = "weight", .bytes = {1 << 20}, .kind = TensorKind::weight, .persistent = true},
                   {.name = "other", .bytes = {1 << 20}, .kind = TensorKind::weight, .persistent = true}};
  for (std::uint32_t l = 0; l < 40; ++l) {
    const Phase phase = l % 2 == 0 ? Phase::forward : Phase::backward;
    trace.layers.push_back({.name = "layer " + std::to_string(l), .phase = phase});
    trace.ops.push_back({.name = "op", .layer = LayerIndex{l}, .phase = phase, .time = {1000000}, .reads = {{l % 2}}});
  }
  return format_trace(trace);
}

std::string imported(const by_hand::Folder& folder, const std::string& name, const std::string& text) {
  import_text(text, folder.file(name)).value();
  return folder.file(name);
}

TEST(ReportOfAnImport, DoesNotSayWhetherABudgetHoldsThatNobodyGave) {
  const by_hand::Folder folder;
  for (const std::string& text : {alternating_trace(), std::string(damon)}) {
    const Report report = analyse(load_run(imported(folder, "run.vedette", text)).value(), {});
    EXPECT_EQ(report.headline.fits, std::nullopt);
    const auto headline = nlohmann::json::parse(format_json(report, nullptr))["run"]["headline"];
    for (const char* key : {"fits", "budget_bytes", "budget_share", "resident_max_bytes", "stall_ns", "stall_share",
                            "bytes_in", "bytes_out", "faults", "speed_of_bound"})
      EXPECT_TRUE(headline[key].is_null()) << key << " " << headline[key];
    EXPECT_THAT(format_text(report, nullptr),
                AllOf(HasSubstr("stays within the budget   -\n"), Not(HasSubstr("0 B in"))));
  }
}

TEST(ReportOfAnImport, OfAMonitorHasNoPhases) {
  const by_hand::Folder folder;
  const Report report = analyse(load_run(imported(folder, "run.vedette", damon)).value(), {});
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[0].phase, "");
  EXPECT_TRUE(report.memory.phases.empty());
}

TEST(ReportOfAnImport, IsSimulatedOnTheMachineThatTheCommandNames) {
  const by_hand::Folder folder;
  const std::string recording = imported(folder, "run.vedette", alternating_trace());
  const auto budgets = [&](const std::string& options) {
    const auto ran = vedette::testing::run(VEDETTE_CLI " report '" + recording + "' --json " + options);
    EXPECT_EQ(ran.status, 0);
    return nlohmann::json::parse(ran.text)["run"]["reuse"];
  };
  EXPECT_FALSE(budgets("")["simulated"]) << "an import names no machine";
  const auto simulated = budgets("--machine a100-g10 --policy on-demand");
  EXPECT_TRUE(simulated["simulated"]);
  EXPECT_EQ(simulated["policy"], "on-demand");
  EXPECT_GT(simulated["curve"][6]["step_ns"], 40000000) << "at 50 % the two weights take turns";
}

// What the page shows, without its scripts.
std::string shown(const by_hand::Folder& folder, const std::string& text) {
  const std::string recording = imported(folder, "run.vedette", text), page = folder.file("page.html"),
                    document = folder.file("document");
  EXPECT_EQ(vedette::testing::run(VEDETTE_CLI " report '" + recording + "' -o '" + page + "'").status, 0);
  vedette::testing::run("timeout 240 '" CHROMIUM
                        "' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
                        " --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir='" +
                        folder.file("browser") +
                        "' --window-size=1280,4000 --virtual-time-budget=20000 --dump-dom 'file://" + page + "' >'" +
                        document + "' 2>/dev/null");
  std::ifstream file(document);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(all, HasSubstr("data-ready="));
  const std::size_t begin = all.find("<main"), end = all.find("</main>");
  return begin < end && end != all.npos ? all.substr(begin, end - begin) : std::string();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(ReportOfAnImport, ShowsNoVerdictNoEmptyChartAndItsHeatMap) {
  if (std::string_view(CHROMIUM).empty()) GTEST_SKIP() << "no Chromium was found when this was configured";
  const by_hand::Folder folder;
  const std::string page = shown(folder, alternating_trace());
  EXPECT_THAT(page, AllOf(HasSubstr("A step of 40 operators with 2.0 MiB of live memory"),
                          HasSubstr("vedette report --machine"), Not(HasSubstr("1 steps")),
                          Not(HasSubstr("Stays within")), Not(HasSubstr("Step time and stalls"))));
  if (page_has_charts()) {
    EXPECT_THAT(page, HasSubstr("js-plotly-plot"));
    EXPECT_LE(count(page, "stroke-dasharray: 3px, 3px"), 8u) << "a line a phase change covers the map";
  }
}

TEST(ReportOfAnImport, OfAMonitorEndsItsSentences) {
  if (std::string_view(CHROMIUM).empty()) GTEST_SKIP() << "no Chromium was found when this was configured";
  const by_hand::Folder folder;
  const std::string page = shown(folder, damon);
  EXPECT_THAT(page, AllOf(HasSubstr("saw a page in use. Pages of 4.0 KiB."), Not(HasSubstr(">forward<")),
                          HasSubstr("watched in 2 snapshots")));
}

}  // namespace
}  // namespace vedette::report::imported_test
