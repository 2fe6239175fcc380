// The page as a browser shows it: headless Chromium opens it from disk, says nothing on its console, and shows the
// figures of --json. Screenshots at two widths in both themes stay in the folder VEDETTE_SCREENSHOTS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "profiler/report/report.h"
#include "report/hand_made.h"
#include "support/command.h"

namespace vedette::report::page_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

using vedette::testing::Answer;
using vedette::testing::run;

class Page : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(CHROMIUM).empty())
      GTEST_SKIP() << "no Chromium was found when this was configured: scripts/setup.sh --tests installs Debian's";
  }

  // What Chromium prints: the document after its scripts ran, or nothing with a screenshot. Its console goes to
  // `console_`.
  // Chromium's virtual clock may run out before a busy machine has drawn the page's first frame: then once more.
  std::string open(const std::string& page, const std::string& options, const std::string& hash = "") {
    std::string shown = open_once(page, options, hash);
    if (options == "--dump-dom" && shown.find("data-ready=") == shown.npos) shown = open_once(page, options, hash);
    return shown;
  }
  std::string open_once(const std::string& page, const std::string& options, const std::string& hash) {
    const std::string log = folder_.file("console");
    const Answer answer =
        run("timeout 240 '" CHROMIUM
            "' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run"
            " --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir='" +
            folder_.file("browser") +
            "' --virtual-time-budget=20000"
            " --enable-logging=stderr --v=0 " +
            options + " 'file://" + page + hash + "' 2>'" + log + "'");
    std::ifstream file(log);
    console_.clear();
    for (std::string line; std::getline(file, line);)
      if (line.find("CONSOLE") != std::string::npos) console_ += line + "\n";
    EXPECT_EQ(answer.status, 0) << "Chromium did not end";
    return answer.text;
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.file(name), std::ios::binary) << text;
    return folder_.file(name);
  }
  Report hand_made(const by_hand::Names& names = {}) {
    ReportOptions options;  // a simulator that likes more memory and another policy
    options.adviser.in_chunks = [](const Trace& trace, const Machine&, std::string_view) { return trace; };
    options.adviser.policies = {"sentinel"};
    options.adviser.simulate = [](const Trace&, const Machine& machine, std::string_view policy) -> Result<Simulated> {
      const std::int64_t gain =
          (machine.tiers[0].capacity > Bytes{24576} ? 21000 : 0) + (policy == "vedette" ? 0 : 9000);
      return Simulated{.step = {60000 - gain}, .stall = {22000 - gain}, .bytes_in = {}, .bytes_out = {}};
    };
    options.pricer.prices = [](const Trace& trace, const Machine&) {
      MemoryPrices prices{.waiting_ns = 7000, .op_ns_per_byte = std::vector<double>(trace.ops.size(), 0.25)};
      for (const Tensor& tensor : trace.tensors)
        prices.tensor_ns.push_back(0.5 * static_cast<double>(tensor.bytes.value));
      prices.runs = {{{0}, {3}}};
      return prices;
    };
    options.pricer.simulate = [](const Trace&, const Machine& machine, std::string_view) -> Result<Simulated> {
      const bool less = machine.tiers[0].capacity<Bytes{24576}, fast = machine.links[0].bytes_per_s> 190'000'000'000;
      return Simulated{.step = {less && !fast ? 90000 : 60000}, .stall = {9000}, .bytes_in = {}, .bytes_out = {}};
    };
    return analyse(load_run(by_hand::record_by_hand(folder_.file("run.vedette"), names)).value(), options);
  }
  by_hand::Folder folder_;
  std::string console_;
};

// The number that the page says stands at `path`, against the JSON.
void expect_equal(const nlohmann::json& json, const std::string& path, const std::string& shown) {
  nlohmann::json::json_pointer pointer(std::string("/").append(std::regex_replace(path, std::regex("\\."), "/")));
  ASSERT_TRUE(json.contains(pointer)) << path;
  const auto& value = json.at(pointer);
  if (value.is_null())
    EXPECT_EQ(shown, "") << path;
  else if (value.is_boolean())
    EXPECT_EQ(shown, value.get<bool>() ? "true" : "false") << path;
  else if (value.is_string())
    EXPECT_EQ(shown, value.get<std::string>()) << path;
  else
    EXPECT_DOUBLE_EQ(std::stod(shown), value.get<double>()) << path;
}

std::size_t compare_figures(const std::string& document, const nlohmann::json& json) {
  static const std::regex figure("data-figure=\"([^\"]+)\" data-value=\"([^\"]*)\"");
  std::size_t found = 0;
  for (auto at = std::sregex_iterator(document.begin(), document.end(), figure); at != std::sregex_iterator(); ++at) {
    const std::string path = (*at)[1];
    // What a table makes of several keys has none of its own.
    if (std::regex_search(path, std::regex("\\.(label|order|lifetime|where)$"))) continue;
    expect_equal(json, path, (*at)[2]);
    ++found;
  }
  return found;
}

TEST_F(Page, OpensFromDiskSilentlyAndShowsTheFiguresOfTheJson) {
  const Report report = hand_made();
  const std::string document = open(write("report.html", format_page(report, nullptr)), "--dump-dom");
  EXPECT_EQ(console_, "");
  EXPECT_THAT(document, HasSubstr("data-ready="));
  EXPECT_GT(compare_figures(document, nlohmann::json::parse(format_json(report, nullptr))), 80u);
  for (const char* part : {">0.1 ms", "24.0 KiB", "It fits: 28.0 KiB", "Where the step", "Stalls: late fetch",
                           "Plan with the policy sentinel", "Made with", "report_page",
                           "What memory costs, tensor by tensor", "The links are 2 x as fast"})
    EXPECT_THAT(document, HasSubstr(part)) << "as people read it";
  for (const char* part : {">null<", ">undefined<", ">NaN"})
    EXPECT_THAT(document, Not(HasSubstr(part))) << "what is not there is left out, not spelt";
  EXPECT_EQ(document.find("js-plotly-plot") != std::string::npos, page_has_charts());
}

TEST_F(Page, TellsEnergyAndStreamsOfARunOnAGpuAlone) {
  Report report = hand_made();
  const std::string at = "#timeline/5/0-110000/op/2";
  const std::string cpu = open(write("cpu.html", format_page(report, nullptr)), "--dump-dom", at);
  EXPECT_THAT(cpu, HasSubstr("op 2: sum</b>, 19.0 \u00b5s, from 21.0 \u00b5s on</li>"));
  EXPECT_THAT(cpu, Not(HasSubstr("<dt>Energy of a step</dt>")));
  report.machine.tiers[0].name = "gpu:0";
  report.energy = {.steps = 3, .device = "gpu:0", .median_j = 0.25, .mean_j = 12.5, .watts = 310};
  for (StepTimeline& step : report.timeline.steps)
    for (TimelineOp& op : step.ops) op.stream = op.name == "sum" ? 1 : 0;
  const std::string gpu = open(write("gpu.html", format_page(report, nullptr)), "--dump-dom", at);
  EXPECT_EQ(console_, "");
  compare_figures(gpu, nlohmann::json::parse(format_json(report, nullptr)));
  for (const char* part : {"<dt>Energy of a step</dt>", ">250 mJ<", ">12.50 J<", ">310 W<", "on, gpu:0, stream 1</li>"})
    EXPECT_THAT(gpu, HasSubstr(part));
}

TEST_F(Page, PutsTwoRunsSideBySide) {
  const Report report = hand_made();
  const std::string document = open(write("two.html", format_page(report, &report)), "--dump-dom");
  EXPECT_EQ(console_, "");
  EXPECT_THAT(document, HasSubstr("data-figure=\"other.headline.median_step_ns\""));
  EXPECT_THAT(document, HasSubstr("not told apart")) << "a run and itself";
  for (const char* part :
       {"Both steps on one axis", "Both steps ran the same operators", "No tensor makes a difference"})
    EXPECT_THAT(document, HasSubstr(part));
  Report other = report;
  other.layers.back().stall = {400000};  // the last layer becomes the first row
  other.tensors[0].bytes += Bytes{1024};
  other.headline.peak += Bytes{1024};
  const std::string differ = open(write("differ.html", format_page(report, &other)), "--dump-dom");
  EXPECT_EQ(console_, "");
  EXPECT_THAT(differ, HasSubstr("At the peak +1.0 KiB"));
  const std::size_t table = differ.find("aria-label=\"Layers of both runs\""), first = differ.find("<tbody>", table);
  ASSERT_NE(table, std::string::npos);
  const std::string row = differ.substr(first, differ.find("</tr>", first) - first);
  EXPECT_THAT(row, HasSubstr("backward"));
  EXPECT_THAT(row, HasSubstr("class=\"slower\" style=\"width:50.0%\"")) << "the largest difference fills its half";
  compare_figures(document, nlohmann::json::parse(format_json(report, &report)));
}

TEST_F(Page, RunsNothingThatANameSays) {
  const Report report = hand_made({.program = "</script><script>console.error('ran')</script>",
                                   .weight = "<img src=x onerror=\"console.error('ran')\">",
                                   .hidden = "<a href=\"javascript:console.error('ran')\">x</a>",
                                   .brief = "<!--<script>",
                                   .layer = "<svg onload=console.error('ran')>",
                                   .op = "\xff'\"",
                                   .unit = "<b onmouseover=console.error('ran')>"});
  const std::string document = open(write("hostile.html", format_page(report, &report)), "--dump-dom");
  EXPECT_EQ(console_, "");
  EXPECT_THAT(document, HasSubstr("data-ready=")) << "the page's own script has run";
  const std::string shown = document.substr(document.find("<main"), document.find("</main>") - document.find("<main"));
  for (const char* part : {"<img", "<svg onload", "<a href=\"javascript:", "xlink:href=\"javascript:", "<b onmouse"})
    EXPECT_EQ(shown.find(part), std::string::npos) << part;
}

Report of_many_tensors(std::size_t count) {
  Run run{.program = "many tensors", .policy = "vedette", .budget = {1 << 30}, .chunk = {1 << 21}, .ended = true};
  Profile& p = run.profiles.emplace_back();
  run.profile = 0;
  for (std::uint32_t l = 0; l < 100; ++l)
    p.trace.layers.push_back({.name = std::string("layer.").append(std::to_string(l))});
  for (std::uint32_t t = 0; t < count; ++t) {
    p.trace.tensors.push_back({.name = std::string("tensor.").append(std::to_string(t)),
                               .bytes = {4096 + (t * 7919u) % 1000000},
                               .kind = static_cast<TensorKind>(t % 7),
                               .persistent = t % 3 == 0});
    p.trace.ops.push_back({.name = "op",
                           .layer = LayerIndex{t * 100 / static_cast<std::uint32_t>(count)},
                           .time = {10000},
                           .workspace = {},
                           .reads = {},
                           .writes = {{t}}});
  }
  return analyse(run, {});
}

TEST_F(Page, ShowsTenThousandTensorsAFewRowsAtATime) {
  const std::string document =
      open(write("many.html", format_page(of_many_tensors(10000), nullptr)), "--dump-dom --window-size=1280,1200");
  EXPECT_EQ(console_, "");
  std::smatch ready;
  ASSERT_TRUE(std::regex_search(document, ready, std::regex("data-ready=\"([0-9]+)\"")));
  RecordProperty("milliseconds_until_ready", ready[1].str());
  std::cout << "ready after " << ready[1] << " ms\n";
  std::size_t rows = 0;
  for (std::size_t at = document.find("aria-rowindex"); at != std::string::npos;
       at = document.find("aria-rowindex", at + 1))
    ++rows;
  EXPECT_LT(rows, 300u) << "a table holds what is in view";
  EXPECT_THAT(document, HasSubstr("10,000 tensors"));
}

TEST_F(Page, OfTenThousandTensorsHasAMapOfMeans) {
  if (std::string_view(PYTHON3).empty()) GTEST_SKIP() << "no python3 was found when this was configured";
  const std::string page = write("many.html", format_page(of_many_tensors(10000), nullptr));
  const Answer ran = run("timeout 200 " PYTHON3 " '" BROWSER "' many '" CHROMIUM "' '" + page + "' 2>&1");
  ASSERT_EQ(ran.status, 0) << ran.text;
  const nlohmann::json told = nlohmann::json::parse(ran.text);
  std::cout << "ready after " << told["processor_ms"] << " ms of a processor\n";
  ASSERT_EQ(told["mean"].size(), 480u);
  double most = 0;
  for (std::size_t row = 0; row < told["mean"].size(); ++row) {
    EXPECT_NEAR(told["mean"][row].get<double>(), 1, 1e-6) << "each page is written once, in one layer; row " << row;
    most = std::max(most, told["most"][row].get<double>());
  }
  EXPECT_GT(most, 1.5) << "a row with pages of two layers";
}

TEST_F(Page, OfVeryManyTensorsShowsTheLargestAndCountsTheRest) {
  const Report report = of_many_tensors(25000);
  const std::string page = format_page(report, nullptr), whole = format_json(report, nullptr);
  EXPECT_EQ(nlohmann::json::parse(whole)["run"]["tensors"].size(), 25000u) << "scripts get all of them";
  const std::string document = open(write("very_many.html", page), "--dump-dom --window-size=1280,1200");
  EXPECT_EQ(console_, "");
  EXPECT_TRUE(
      std::regex_search(document, std::regex("data-figure=\"run\\.tensors_left_out\" data-value=\"4[0-9]{3}\"")));
}

TEST_F(Page, LeavesScreenshotsAtTwoWidthsInBothThemes) {
  fs::create_directories(VEDETTE_SCREENSHOTS);
  const Report report = hand_made();
  const std::pair<std::string, std::string> pages[] = {
      {"report", write("report.html", format_page(report, nullptr))},
      {"compare", write("compare.html", format_page(report, &report))}};
  for (const auto& [name, page] : pages) {
    for (const char* theme : {"light", "dark"}) {
      for (const char* width : {"1280", "420"}) {
        const std::string picture = std::string(VEDETTE_SCREENSHOTS)
                                        .append("/")
                                        .append(name)
                                        .append("-")
                                        .append(width)
                                        .append("-")
                                        .append(theme)
                                        .append(".png");
        fs::remove(picture);
        open(page, "--screenshot='" + picture + "' --window-size=" + width + ",7000", std::string("#theme=") + theme);
        EXPECT_EQ(console_, "");
        ASSERT_TRUE(fs::exists(picture));
        EXPECT_GT(fs::file_size(picture), 50'000u) << "more than an empty page";
      }
    }
  }
}

TEST_F(Page, FitsAPhoneAndADesk) {
  if (std::string_view(PYTHON3).empty()) GTEST_SKIP() << "no python3 was found when this was configured";
  const Report report = hand_made();
  for (const Report* other : {static_cast<const Report*>(nullptr), &report}) {
    const std::string page = write("fits.html", format_page(report, other));
    const Answer ran = run("timeout 400 " PYTHON3 " '" BROWSER "' fits '" CHROMIUM "' '" + page + "' 420 1280 2>&1");
    ASSERT_EQ(ran.status, 0) << ran.text;
    std::istringstream lines(ran.text);
    for (const int width : {420, 1280}) {
      std::string line;
      ASSERT_TRUE(std::getline(lines, line)) << ran.text;
      const auto told = nlohmann::json::parse(line);
      EXPECT_LE(told["width"], width);
      EXPECT_GE(told["drawn"], page_has_charts() ? told["charts"].get<int>() : 0) << "there is something to look at";
      EXPECT_EQ(told["cut"], nlohmann::json::array()) << width;
      EXPECT_EQ(told["overlap"], nlohmann::json::array()) << width;
    }
  }
}

TEST_F(Page, ObeysItsKeysAndPrints) {
  if (std::string_view(PYTHON3).empty()) GTEST_SKIP() << "no python3 was found when this was configured";
  Report report = hand_made();
  report.tensors[0].stack = {"program::makes_a_weight()", "main"};
  const std::string page = write("used.html", format_page(report, nullptr));
  const Answer used =
      run("timeout 400 " PYTHON3 " '" BROWSER "' use '" CHROMIUM "' '" + page + "' '" + folder_.file(".") + "' 2>&1");
  ASSERT_EQ(used.status, 0) << used.text;
  const auto told = nlohmann::json::parse(used.text);
  for (const char* done : {"theme_changes", "keys_shown", "keys_hidden", "section_reached"})
    EXPECT_EQ(told[done], true) << done;
  EXPECT_EQ(told["section_named"], "#layers");
  EXPECT_EQ(told["filter_focused"], "tensor-filter");
  EXPECT_EQ(told["filter_text"], "weight t");
  EXPECT_EQ(told["filtered"], "1 of 3 tensors");
  EXPECT_EQ(told["zoomed"], "weight");
  EXPECT_EQ(told["allocated"], "Allocated by\nprogram::makes_a_weight()\nmain");
  EXPECT_EQ(told["zoomed_out"], "");
  EXPECT_EQ(told["sorted"], "ascending");
  EXPECT_EQ(told["part_open"], "true");
  EXPECT_EQ(told["layer_marked"], "backward");
  // by page and layer: the weight is read in forward, read and written in backward; the last tensor lives in forward
  EXPECT_EQ(told["map"], nlohmann::json::parse("[[1,2],[1,2],[1,2],[1,2],[2,1],[2,1],[2,0]]"));
  EXPECT_EQ(told["tip"], "brief, activation, 4.0 KiB (1 page) in linear, forward: 2 uses");
  EXPECT_LT(told["tip_near"].get<double>(), 40) << "beside the pointer";
  EXPECT_EQ(told["gap_clicked"], "brief, activation, 4.0 KiB") << "a row is clickable where nothing used it";
  EXPECT_EQ(told["name_clicked"], "hidden, activation, 8.0 KiB");
  EXPECT_EQ(told["dragged"], nlohmann::json::parse("[[2,1],[2,1],[2,0]]")) << "the rows that the mouse went over";
  EXPECT_EQ(told["all_again"], 7);
  EXPECT_EQ(told["roles"], nlohmann::json::parse("[\"hidden\",\"brief\",\"weight\"]"));
  EXPECT_EQ(told["hottest"], nlohmann::json::parse("[\"hidden\",\"weight\",\"brief\"]")) << "written most a page";
  EXPECT_EQ(told["reads"], nlohmann::json::parse("[[1,1],[1,1],[1,1],[1,1],[1,1],[0,1],[1,0]]"));
  EXPECT_THAT(told["counted"].get<std::string>(), HasSubstr("Counted: page tracking looked after each operator"));
  EXPECT_EQ(told["map_closer"], nlohmann::json::parse("[[2,1],[2,1]]")) << "two pages, from the exact ranges";
  EXPECT_EQ(told["map_names"], "weight");
  EXPECT_EQ(told["map_places"], "[[0,1],[0,1],[0,1],[0,1],[0,0],[0,0],[0,null]]") << "near, then fetched";
  const auto stall = told["stall"].get<std::string>();
  for (const char* part : {"of stall before op 3 (back)", "for the fetch of weight", "of the tensor weight",
                           "had it begun 15.0 us earlier, in op 2 (sum)"})
    EXPECT_THAT(stall, HasSubstr(part));
  EXPECT_THAT(told["address"].get<std::string>(), ::testing::MatchesRegex("#timeline/5/[0-9]+-[0-9]+/stall/0"));
  EXPECT_THAT(told["move"].get<std::string>(), HasSubstr("waited for by op 3 (back)"));
  EXPECT_GT(told["painted"].get<int>(), 8) << "several colours";
  EXPECT_EQ(told["other_step"], "0-100000");
  EXPECT_EQ(told["recalled"], "30000-70000");
  EXPECT_EQ(told["recalled_stall"], true);
  EXPECT_EQ(told["console"], nlohmann::json::array());
  std::ifstream printed(folder_.file("report.pdf"), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(printed), {}).substr(0, 5), "%PDF-");
}

TEST_F(Page, IsWhatTheCommandWrites) {
  const std::string recording = by_hand::record_by_hand(folder_.file("run.vedette")), page = folder_.file("page.html");
  const Answer made = run(VEDETTE_CLI " report '" + recording + "' -o '" + page + "' 2>&1");
  EXPECT_EQ(made.status, 0) << made.text;
  const Answer json = run(VEDETTE_CLI " report '" + recording + "' --json");
  ASSERT_EQ(json.status, 0);
  const auto figures = nlohmann::json::parse(json.text);
  EXPECT_TRUE(figures["run"]["reuse"]["simulated"]) << "the command line brings a simulator";
  EXPECT_EQ(figures["run"]["reuse"]["curve"].back()["bytes_in"], 0) << "with the whole peak nothing moves";
  EXPECT_GT(compare_figures(open(page, "--dump-dom"), figures), 80u);
  EXPECT_EQ(console_, "");
  EXPECT_THAT(run(VEDETTE_CLI " report '" + recording + "' --text --compare '" + recording + "'").text,
              HasSubstr("the other"));
  const Answer refused = run(VEDETTE_CLI " report /nowhere --text 2>&1");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.text, HasSubstr("no such file"));
}

}  // namespace
}  // namespace vedette::report::page_test
