// Every export, read by the tool it is for, or by an independent reader of its format (readers.py), with figures known
// beforehand.
#include "profiler/exports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <unordered_map>

#include "profiler/told_run.h"
#include "session/player.h"
#include "support/generate_trace.h"

namespace vedette::exports_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string exported(const std::string& recording, const std::string& format, const ExportOptions& options = {}) {
  const std::string path = told::fresh_path(std::filesystem::path(recording).filename().string() + "." + format);
  std::ofstream file(path, std::ios::binary);
  export_recording(recording, format, options, file).value();
  return path;
}

// nullopt: skipped, the reason is in `why`.
std::optional<json> read_with(const std::string& python, const std::string& arguments, std::string& why) {
  if (python.starts_with("/") && !std::filesystem::exists(python)) {
    why = python + " is missing (scripts/setup.sh makes it)";
    return std::nullopt;
  }
  const told::Ran ran = told::run(python + " '" READERS "' " + arguments);
  if (ran.status == 77) {
    why = ran.output;
    return std::nullopt;
  }
  EXPECT_EQ(ran.status, 0) << ran.output;
  const std::size_t last = ran.output.rfind("\n{");  // what a tool warns of comes first
  return json::parse(ran.output.substr(last == std::string::npos ? 0 : last + 1), nullptr, false);
}

json read_with_python(const std::string& arguments) {
  std::string why;
  return read_with("python3", arguments, why).value_or(json());
}

TEST(Export, TellsTheProfileAsVedetteTrace1) {
  const std::string path = exported(told::record_run("trace.vedette", 2), "trace");
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Trace expected = told::two_layers();
  expected.pages.clear();
  for (Tensor& t : expected.tensors) t.site = {};
  EXPECT_EQ(parse_trace(text).value(), expected);
}

TEST(Export, PerfettoGetsNestedSlicesFlowsAndCounters) {
  const std::string recording = told::record_run("perfetto.vedette", 3);
  const json one =
      read_with_python("perfetto '" + exported(recording, "perfetto", {.steps = Span<std::uint64_t>{2, 3}}) + "'");
  ASSERT_TRUE(one.is_object());
  // From the step's begin; nested by their times.
  const json program =
      json::parse(R"j([[0,100,"user_annotation","ProfilerStep#2"],[10,45,"user_annotation","linear (forward)"],
    [50,70,"user_annotation","linear (backward)"],[10,20,"cpu_op","mm"],[25,45,"cpu_op","relu"],[50,70,"cpu_op","mm"]])j");
  EXPECT_EQ(one["slices"]["1"], program);
  EXPECT_EQ(one["slices"]["2"], json::parse(R"j([[11,15,"user_annotation","waits for an operand"]])j"));
  EXPECT_EQ(one["slices"]["100"], json::parse(R"j([[2,14,"gpu_memcpy","Memcpy HtoD fetch (urgent)"]])j"));
  EXPECT_EQ(one["slices"]["101"], json::parse(R"j([[72,80,"gpu_memcpy","Memcpy DtoH evict (planned)"]])j"));
  EXPECT_EQ(one["slices"]["4"], json::parse(R"j([[10,11,"kernel","mm"],[15,20,"kernel","mm"],[25,45,"kernel","relu"],
    [50,70,"kernel","mm"]])j"));
  EXPECT_EQ(one["flows"], json::parse(R"j(["fwdbwd"])j"));
  EXPECT_EQ(one["counters"], json::parse(R"j(["dram bytes","nvme bytes"])j"));
  EXPECT_EQ(one["memory"], json::parse("[75536,65536]"));
  EXPECT_EQ(one["counts"]["i"], 3);  // two changes of what lives, one fault
  const json all =
      read_with_python("perfetto '" + exported(recording, "perfetto", {.steps = Span<std::uint64_t>{0, 100}}) + "'");
  EXPECT_EQ(all["slices"]["1"].size(), 18u);
}

TEST(Export, HtaFindsOpsAndMoves) {
  const json facts = read_with_python("hta '" + exported(told::record_run("hta.vedette", 3), "perfetto") + "'");
  EXPECT_EQ(facts["busy"], json::parse(R"j({"compute": 46, "memory": 20})j"));
  EXPECT_EQ(facts["copied"], json::parse(R"j({"Memcpy HtoD": 65536, "Memcpy DtoH": 65536})j"));
}

TEST(Export, TorchsMemoryViewerReadsTheSnapshot) {
  const std::string module = MEMORY_VIZ;
  if (module.empty())
    GTEST_SKIP() << "torch/cuda/_memory_viz.py is missing (scripts/setup.sh installs libtorch into .venv)";
  const json facts = read_with_python("memory-viz '" + exported(told::record_run("viz.vedette", 2), "memory-viz") +
                                      "' '" + module + "'");
  ASSERT_TRUE(facts.is_object());
  // The first step is shown. weight lives all the time, is fetched, and is evicted at the step's end.
  EXPECT_EQ(facts["peak"], json::parse("[75536,65536]"));
  EXPECT_EQ(facts["replayed"], facts["peak"]);
  EXPECT_EQ(facts["end"], json::parse("[0,65536]"));
  EXPECT_EQ(facts["actions"][0],
            json::parse(R"j(["alloc hidden","alloc weight","free_requested hidden","free_completed hidden",
                                                 "free_requested weight","free_completed weight"])j"));
  EXPECT_EQ(facts["actions"][1],
            json::parse(R"j(["alloc weight","free_requested weight","free_completed weight","alloc weight"])j"));
  EXPECT_EQ(facts["devices"], json::parse("[0,1]"));
  EXPECT_EQ(facts["active"], json::parse("[0,65536]"));
  EXPECT_EQ(facts["memory"], json::parse(
                                 R"j(["stream_0;inactive;<non-python> 0","stream_0;inactive;<gaps> 75536",
               "stream_0;active_allocated;layer:0:no layer;op:0:before the step;tensor:0:weight 65536"])j"));
}

TEST(Export, PtSnapReplaysTheSnapshotToOurPeaks) {
  std::string why;
  const auto facts = read_with(PYTHON_OF_SETUP,
                               "pt-snap '" + exported(told::record_run("pt_snap.vedette", 2), "memory-viz") + "'", why);
  if (!facts) GTEST_SKIP() << why;
  EXPECT_EQ((*facts)["devices"], json::parse("[0,1]"));
  EXPECT_EQ((*facts)["peak"], json::parse("[75536,65536]"));
}

TEST(Export, PerfettosTraceProcessorReadsEverySlice) {
  const std::string path = exported(told::record_run("processed.vedette", 3), "perfetto");
  std::string why;
  const auto facts = read_with("python3", "trace-processor '" + path + "'", why);
  if (!facts) GTEST_SKIP() << why;
  std::size_t slices = 0;
  for (const auto& track : read_with_python("perfetto '" + path + "'")["slices"]) slices += track.size();
  EXPECT_EQ((*facts)["slices"], slices);
  EXPECT_EQ((*facts)["errors"], 0);
}

TEST(Export, TheMemoryViewersDevicesAreTheTiers) {
  const std::string module = MEMORY_VIZ;
  if (module.empty())
    GTEST_SKIP() << "torch/cuda/_memory_viz.py is missing (scripts/setup.sh installs libtorch into .venv)";
  // The second of three equal steps is shown: weight was evicted at the end of the first.
  const json facts = read_with_python("memory-viz '" + exported(told::record_run("tiers.vedette", 3), "memory-viz") +
                                      "' '" + module + "'");
  EXPECT_EQ(facts["actions"][0],
            json::parse(R"j(["alloc hidden","alloc weight","free_requested hidden","free_completed hidden",
                                                  "free_requested weight","free_completed weight"])j"));
  EXPECT_EQ(facts["actions"][1],
            json::parse(R"j(["alloc weight","free_requested weight","free_completed weight","alloc weight"])j"));
  EXPECT_EQ(facts["end"], json::parse("[0,65536]"));
}

// A real step whose tensors move: readers add up no more on a device than there was, and no less than was resident but
// for what chunks hold beside living tensors.
TEST(Export, ASessionsPeakInAReaderIsItsOwn) {
  const std::string module = MEMORY_VIZ;
  if (module.empty())
    GTEST_SKIP() << "torch/cuda/_memory_viz.py is missing (scripts/setup.sh installs libtorch into .venv)";
  constexpr std::size_t chunk = 64 << 10;
  const std::string path = told::fresh_path("session.vedette");
  {
    auto recorder = Recorder::open({.path = path, .program = "session", .live = false}).value();
    const auto session = testing::open_session({24 * chunk}, "host", "vedette", {chunk}, recorder.get());
    testing::SessionPlayer player(*session);
    testing::Player::Tensors weights;
    for (std::size_t l = 0; l < 12; ++l) weights.push_back(player.filled(3 * chunk, l));
    for (int s = 0; s < 8; ++s) {
      player.step([&] {
        testing::Player::Tensors made;
        for (const auto w : weights)
          made.push_back(
              player.made("forward", chunk + chunk / 2,
                          made.empty() ? testing::Player::Tensors{w} : testing::Player::Tensors{w, made.back()}));
        for (std::size_t l = weights.size(); l-- > 0; made.pop_back()) {
          player.changed("update", {weights[l]}, {made.back()});
          player.drop(made.back());
        }
      });
    }
  }
  const report::Run run = report::load_run(path).value();
  const report::StepRow& shown = *run.shown_step();
  ASSERT_GT(shown.counters.bytes_out.value, 0u);
  const json facts = read_with_python("memory-viz '" + exported(path, "memory-viz") + "' '" + module + "'");
  ASSERT_TRUE(facts.is_object());
  EXPECT_EQ(facts["replayed"], facts["peak"]);
  EXPECT_LE(facts["replayed"][0], run.budget.value);
  EXPECT_LE(facts["replayed"][0], shown.counters.resident_max_bytes.value);
  EXPECT_GE(facts["replayed"][0], shown.counters.resident_max_bytes.value * 2 / 3);
  EXPECT_GE(facts["replayed"][0].get<std::uint64_t>() + facts["replayed"][1].get<std::uint64_t>(),
            shown.counters.peak_bytes.value);
  const Requests requests = requests_of(run.shown_profile()->trace, {chunk}, run.shown_profile()->places);
  std::map<std::uint64_t, std::uint32_t> sizes;
  for (std::size_t i = 0; i < requests.object.size(); ++i) sizes[requests.object[i]] = requests.bytes[i];
  std::uint64_t bytes = 0;
  for (const auto& [number, size] : sizes) bytes += size;
  EXPECT_GE(bytes, shown.counters.peak_bytes.value * 99 / 100);
  EXPECT_LE(bytes, shown.counters.peak_bytes.value * 5 / 4);
  const json hta = read_with_python("hta '" + exported(path, "perfetto") + "'");
  EXPECT_EQ(hta["copied"]["Memcpy HtoD"], shown.counters.bytes_in.value);
  EXPECT_EQ(hta["copied"]["Memcpy DtoH"], shown.counters.bytes_out.value);
  const json perfetto = read_with_python("perfetto '" + exported(path, "perfetto") + "'");
  EXPECT_EQ(*std::max_element(perfetto["memory"].begin(), perfetto["memory"].end()), shown.counters.peak_bytes.value);
}

// Misses of a cache of `capacity` that starts empty, fetches on demand and bypasses only what is larger than it is.
std::uint64_t lru_misses(const Requests& requests, Bytes capacity) {
  std::list<std::pair<std::uint64_t, std::uint32_t>> recent;  // (object, bytes), the least recently requested last
  std::unordered_map<std::uint64_t, decltype(recent)::iterator> held;
  std::uint64_t misses = 0, used = 0;
  for (std::size_t i = 0; i < requests.object.size(); ++i) {
    const std::uint64_t object = requests.object[i];
    if (const auto found = held.find(object); found != held.end()) {
      recent.splice(recent.begin(), recent, found->second);
      continue;
    }
    ++misses;
    if (requests.bytes[i] > capacity.value) continue;
    for (; used + requests.bytes[i] > capacity.value; recent.pop_back()) {
      held.erase(recent.back().first);
      used -= recent.back().second;
    }
    recent.emplace_front(object, requests.bytes[i]);
    held[object] = recent.begin();
    used += requests.bytes[i];
  }
  return misses;
}

std::uint64_t belady_misses(const Requests& requests, Bytes capacity) {
  struct Held {
    std::uint64_t next = 0;  // its next request
    std::uint32_t bytes = 0;
  };
  std::vector<std::uint64_t> next(requests.object.size());
  std::unordered_map<std::uint64_t, std::uint64_t> later;
  for (std::size_t i = requests.object.size(); i-- > 0; later[requests.object[i]] = i) {
    const auto found = later.find(requests.object[i]);
    next[i] = found == later.end() ? ~std::uint64_t{0} : found->second;
  }
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_next;  // (its next request, object) of what is held
  std::unordered_map<std::uint64_t, Held> held;
  std::uint64_t misses = 0, used = 0;
  for (std::size_t i = 0; i < requests.object.size(); ++i) {
    const std::uint64_t object = requests.object[i];
    const auto found = held.find(object);
    if (found != held.end()) {
      by_next.erase({found->second.next, object});
    } else {
      ++misses;
      if (requests.bytes[i] > capacity.value) continue;
      while (used + requests.bytes[i] > capacity.value) {
        const auto furthest = std::prev(by_next.end());
        used -= held[furthest->second].bytes;
        held.erase(furthest->second);
        by_next.erase(furthest);
      }
      used += requests.bytes[i];
    }
    held[object] = {next[i], requests.bytes[i]};
    by_next.insert({next[i], object});
  }
  return misses;
}

void expect_our_misses(const Requests& requests, const json& facts, std::initializer_list<std::uint64_t> capacities) {
  for (const std::uint64_t capacity : capacities) {
    const json& theirs = facts["misses"][std::to_string(capacity)];
    EXPECT_EQ(theirs[0], lru_misses(requests, {capacity})) << capacity;
    EXPECT_EQ(theirs[1], belady_misses(requests, {capacity})) << capacity;
  }
}

TEST(Export, LibCacheSimMissesAsOftenAsWeCount) {
  const std::string recording = told::record_run("oracle.vedette", 2);
  const ExportOptions options{.object = 4_KiB};
  // 16 + 2 pages, 4 + 2, 1.
  const Requests requests = requests_of(told::two_layers(), options.object);
  EXPECT_EQ(requests.object.size(), 25u);
  const std::string path = exported(recording, "oracle-general", options);
  EXPECT_EQ(std::filesystem::file_size(path), 25u * 24u);
  std::string why;
  const auto facts = read_with(PYTHON_OF_SETUP, "oracle-general '" + path + "' 4096 8192 20480 69632 75536", why);
  if (!facts) GTEST_SKIP() << why;
  EXPECT_EQ((*facts)["requests"], 25);
  EXPECT_EQ((*facts)["objects"], 19);
  EXPECT_EQ((*facts)["bytes"], peak_bytes(told::two_layers()).value - 64) << "but for the workspace";
  expect_our_misses(requests, *facts, {4096, 8192, 20480, 69632, 75536});
}

TEST(Export, LibCacheSimAgreesOnAGeneratedStep) {
  const Trace trace = testing::generate_trace(5, {.kind = testing::TraceShape::Kind::unet, .layers = 12});
  const std::string recording = told::record_run("generated.vedette", 1, trace);
  const ExportOptions options{.object = 64_KiB};
  const Requests requests = requests_of(trace, options.object, report::load_run(recording).value().profiles[0].places);
  std::string why;
  const auto facts =
      read_with(PYTHON_OF_SETUP,
                "oracle-general '" + exported(recording, "oracle-general", options) + "' 524288 2097152 8388608", why);
  if (!facts) GTEST_SKIP() << why;
  expect_our_misses(requests, *facts, {524288, 2097152, 8388608});
}

TEST(CacheCounts, AreTheTextbooksFigures) {
  // Belady, Nelson, Shedler's example of FIFO's anomaly: 1 2 3 4 1 2 5 1 2 3 4 5 with three frames: MIN 7, LRU 10; with
  // four: 6 and 8.
  const Requests requests{.object = {1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5},
                          .op = std::vector<std::uint32_t>(12),
                          .bytes = std::vector<std::uint32_t>(12, 10)};
  EXPECT_EQ(lru_misses(requests, {30}), 10u);
  EXPECT_EQ(belady_misses(requests, {39}), 7u);
  EXPECT_EQ(lru_misses(requests, {40}), 8u);
  EXPECT_EQ(belady_misses(requests, {40}), 6u);
  EXPECT_EQ(lru_misses(requests, {9}), 12u);
  EXPECT_EQ(belady_misses(requests, {50}), 5u);
}

// Tensors that do not live at once share memory, and objects are as large as what lies in them.
TEST(OracleRequests, TakeTheMemoryOfTheStepAndNoMore) {
  Trace trace = testing::generate_trace(7, {.kind = testing::TraceShape::Kind::unet, .layers = 10, .frees = true});
  for (Op& op : trace.ops) op.workspace = {};
  std::uint64_t all = 0;
  for (const Tensor& t : trace.tensors) all += t.bytes.value;
  for (const Bytes object : {4_KiB, 64_KiB, 2_MiB}) {
    const Requests requests = requests_of(trace, object);
    std::map<std::uint64_t, std::uint32_t> sizes;
    for (std::size_t i = 0; i < requests.object.size(); ++i) {
      const auto [size, fresh] = sizes.emplace(requests.object[i], requests.bytes[i]);
      EXPECT_EQ(size->second, requests.bytes[i]);
      EXPECT_LE(requests.bytes[i], object.value);
    }
    std::uint64_t bytes = 0;
    for (const auto& [number, size] : sizes) bytes += size;
    EXPECT_GE(bytes, peak_bytes(trace).value);
    EXPECT_LE(bytes, peak_bytes(trace).value * 5 / 4) << "first fit leaves holes";
    EXPECT_GT(all, bytes);
  }
}

TEST(Export, MinimallocGetsEveryLife) {
  const json facts =
      read_with_python("minimalloc '" + exported(told::record_run("minimalloc.vedette", 1), "minimalloc") + "'");
  EXPECT_EQ(facts["buffers"], json::parse(R"j([["t0",0,3,65536],["t1",0,3,10000],["w2",2,3,64]])j"));
  EXPECT_EQ(facts["peak"], 75600);
  const Trace trace = testing::generate_trace(9, {.layers = 9, .frees = true});
  const json generated =
      read_with_python("minimalloc '" + exported(told::record_run("lives.vedette", 1, trace), "minimalloc") + "'");
  EXPECT_EQ(generated["peak"], peak_bytes(trace).value);
}

TEST(Export, MqsimGetsTheMovesAsRequests) {
  std::ostringstream out;
  export_recording(told::record_run("mqsim.vedette", 2), "mqsim", {}, out).value();
  EXPECT_EQ(out.str(), "0 0 0 128 1\n70 0 0 128 0\n1000000 0 0 128 1\n1000070 0 0 128 0\n");
}

TEST(Export, CsvKeepsEveryTableAndAnyText) {
  Trace trace = told::two_layers();
  trace.tensors[0].name = "a \"quoted\", name\nof two lines";
  const std::string recording = told::record_run("csv.vedette", 1, trace);
  const json facts = read_with_python("csv '" + exported(recording, "csv", {.table = "tensors"}) + "'");
  EXPECT_EQ(facts["rows"][1][2], trace.tensors[0].name);
  EXPECT_EQ(facts["rows"][0][6], "shape");
  EXPECT_EQ(facts["rows"][1][6], "128x128");
  for (const char* formula : {"=cmd|' /C calc'!A0", "+1+2", "-x", "@SUM(1)", "\t=1"}) {
    trace.tensors[0].name = formula;
    const json cells = read_with_python(
        "csv '" + exported(told::record_run("formula.vedette", 1, trace), "csv", {.table = "tensors"}) + "'");
    EXPECT_EQ(cells["rows"][1][2], std::string("'") + formula);
  }
  for (const std::string_view table : exported_tables()) {
    std::ostringstream out;
    EXPECT_TRUE(export_recording(recording, "csv", {.table = std::string(table)}, out).ok()) << table;
  }
  std::ostringstream out;
  EXPECT_THAT(export_recording(recording, "csv", {.table = "sqlite_master; DROP TABLE moves"}, out).error().message,
              HasSubstr("there is no table"));
}

TEST(Export, SaysWhatIsMissing) {
  const std::string path = told::fresh_path("empty.vedette");
  (void)Recorder::open({.path = path, .live = false}).value();
  for (const ExportFormat& format : export_formats()) {
    std::ostringstream out;
    const auto result = export_recording(path, format.name, {.table = "moves"}, out);
    EXPECT_EQ(result.ok(), format.name == "csv") << format.name;
    if (!result.ok()) {
      EXPECT_THAT(result.error().message, ::testing::StartsWith(path)) << format.name;
    }
  }
  std::ostringstream out;
  EXPECT_THAT(export_recording(path, "word", {}, out).error().message, HasSubstr("minimalloc"));
}

// Hostile strings come out as text, whatever the format.
TEST(Export, KeepsHostileNamesInsideTheirFormat) {
  Trace trace = told::two_layers();
  trace.tensors[1].name = std::string("</script>\"\\ \x01 \xff;--\0x", 20);
  trace.ops[0].name = "'); DROP TABLE moves; --\n";
  trace.layers[0].name = "\xc3\x28 {\"a\":1}";
  const std::string recording = told::record_run("hostile.vedette", 1, trace);
  const json perfetto = read_with_python("perfetto '" + exported(recording, "perfetto") + "'");
  EXPECT_TRUE(perfetto.is_object());
  if (!std::string(MEMORY_VIZ).empty()) {
    EXPECT_TRUE(
        read_with_python("memory-viz '" + exported(recording, "memory-viz") + "' '" MEMORY_VIZ "'").is_object());
  }
  std::ostringstream out;
  EXPECT_TRUE(export_recording(recording, "trace", {}, out).ok());
  EXPECT_TRUE(parse_trace(out.str()).ok());
}

}  // namespace
}  // namespace vedette::exports_test
