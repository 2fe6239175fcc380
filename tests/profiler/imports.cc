// What others saw, as a recording that is read like any other.
#include "profiler/imports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/exports.h"
#include "profiler/recording.h"
#include "profiler/report/report.h"
#include "profiler/told_run.h"
#include "support/traces.h"

namespace vedette::imports_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* two_snapshots =
    R"([{"kdamond_idx": 0, "context_idx": 0, "intervals": {"sample_us": "5ms", "aggr_us": "100ms"},
  "scheme_idx": 0, "target_id": 7, "snapshots": [
    {"start_time": "1690134099856513792", "end_time": "1690134099956513792", "total_bytes": "28K", "regions": [
      {"start": "4,096", "end": "12,288", "nr_accesses": {"samples": 0, "percent": null}, "age": {"usec": null, "aggr_intervals": "5,913"}},
      {"start": "12K", "end": "20K", "nr_accesses": {"samples": 19, "percent": "95%"}, "age": {"usec": "1s", "aggr_intervals": 10}},
      {"start": 1048576, "end": 1052672, "nr_accesses": {"samples": null, "percent": "5%"}, "age": {"usec": 0, "aggr_intervals": 0}}]},
    {"start_time": "1690134099956513792", "end_time": "1690134100056513792", "regions": [
      {"start": 4096, "end": 20480, "nr_accesses": 3, "age": 0}]}]}])";

TEST(ImportDamon, TurnsSnapshotsIntoOpsAndRegionsIntoPages) {
  const Sampled sampled = parse_damon(two_snapshots).value();
  const Trace& t = sampled.trace;
  ASSERT_EQ(t.tensors.size(), 2u);
  EXPECT_EQ(t.tensors[0].name, "target 7 0x1000-0x5000");
  EXPECT_EQ(t.tensors[0].bytes, Bytes{16384});
  EXPECT_EQ(t.tensors[1].bytes, Bytes{4096});
  ASSERT_EQ(t.ops.size(), 2u);
  EXPECT_EQ(t.ops[0].time, Nanoseconds{100000000});
  using P = PageAccess;
  EXPECT_THAT(t.pages, ElementsAre(P{.op = {0}, .tensor = {0}, .pages = {2, 4}, .read = true},
                                   P{.op = {0}, .tensor = {1}, .pages = {0, 1}, .read = true},
                                   P{.op = {1}, .tensor = {0}, .pages = {0, 4}, .read = true}));
  EXPECT_THAT(sampled.samples, ElementsAre(19, 5, 3));
  EXPECT_EQ(sampled.when[1], (Span<Nanoseconds>{{100000000}, {200000000}}));
  ASSERT_EQ(t.layers.size(), 2u) << "a column of the heat map for each time";
  EXPECT_EQ(t.layers[1].name, "0.100 s");
  EXPECT_EQ(t.ops[1].layer, LayerIndex{1});
}

TEST(ImportDamon, DrawsTimeFromLeftToRightAndSamplesAsHeat) {
  const std::string path = told::fresh_path("damon_heat.vedette");
  import_text(two_snapshots, path).value();
  const report::Heat heat = report::analyse(report::load_run(path).value(), {}).heat;
  EXPECT_EQ(heat.counted, report::Counted::samples);
  EXPECT_THAT(heat.columns, ElementsAre(0, 1));
  ASSERT_EQ(heat.rows.size(), 5u) << "four pages of one area, one of the other";
  const auto column = [&](std::size_t c) {
    std::vector<float> samples;
    for (const auto& row : heat.reads) samples.push_back(row[c]);
    return samples;
  };
  EXPECT_THAT(column(0), ElementsAre(0, 0, 19, 19, 5));
  EXPECT_THAT(column(1), ElementsAre(3, 3, 3, 3, 0));
}

TEST(ImportDamon, PutsTargetsOfOneTimeIntoOneColumn) {
  const Sampled sampled = parse_damon(R"([
    {"target_id": 1, "snapshots": [{"start_time": 5, "end_time": 9, "regions": [{"start": 0, "end": 4096, "nr_accesses": 2}]}]},
    {"target_id": 2, "snapshots": [{"start_time": 5, "end_time": 9, "regions": [{"start": 0, "end": 4096, "nr_accesses": 7}]}]}])")
                              .value();
  ASSERT_EQ(sampled.trace.ops.size(), 2u);
  EXPECT_EQ(sampled.trace.layers.size(), 1u);
}

TEST(ImportDamon, MakesARecordingThatReportsRead) {
  const std::string path = told::fresh_path("damon.vedette");
  import_text(two_snapshots, path).value();
  auto recording = Recording::open(path).value();
  const auto profiles = recording.profiles().value();
  ASSERT_EQ(profiles.size(), 1u);
  EXPECT_TRUE(profiles[0].tracked);
  const auto frequencies = recording.page_frequencies(profiles[0]).value();
  ASSERT_EQ(frequencies.size(), 3u);
  EXPECT_EQ(frequencies[0].pages, (Span<std::uint64_t>{2, 4}));
  EXPECT_EQ(frequencies[2].pages, (Span<std::uint64_t>{0, 4})) << "in the second aggregation";
  EXPECT_EQ(frequencies[2].ticks, 1u);
  Statement samples(recording.database(), "SELECT SUM(samples) FROM page_accesses");
  samples.ask();
  ASSERT_TRUE(samples.row());
  EXPECT_EQ(samples.integer(0), 27);
  std::ostringstream out;
  EXPECT_TRUE(export_recording(path, "perfetto", {}, out).ok());
  EXPECT_THAT(out.str(), HasSubstr("snapshot 1 of target 7"));
}

std::string compressed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(text.data()),
                     text.size()),
            Z_OK);
  return packed.substr(0, size);
}

std::string file_of(const char* name, const std::string& bytes) {
  const std::string path = told::fresh_path(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(ImportDamon, UnpacksWhatDamoWritesUnlessItIsAskedForJson) {
  const std::string plain = told::fresh_path("plain.vedette"), unpacked = told::fresh_path("unpacked.vedette");
  import_recording(file_of("damon.json", two_snapshots), plain).value();
  const std::string packed = compressed(two_snapshots);
  import_recording(file_of("damon.data", packed), unpacked).value();
  const auto pages = [](const std::string& path) {
    return Recording::open(path)->page_frequencies(Recording::open(path)->profiles()->front()).value().size();
  };
  EXPECT_EQ(pages(unpacked), pages(plain));
  const auto why = [&](const std::string& bytes) {
    return import_recording(file_of("damon.data", bytes), unpacked).error().message;
  };
  EXPECT_THAT(why(packed.substr(0, packed.size() / 2)), HasSubstr("damaged or cut"));
  EXPECT_THAT(why("x marks the spot"), HasSubstr("damaged or cut"));
}

// damo's own classes write the records, compressed as `damo record` does.
TEST(ImportDamon, FindsTheAccessesThatDamoCounts) {
  if (!std::filesystem::exists(PYTHON_OF_SETUP))
    GTEST_SKIP() << PYTHON_OF_SETUP " is missing (scripts/setup.sh makes it)";
  const std::string records = told::fresh_path("damo.data"), path = told::fresh_path("damo.vedette");
  const told::Ran ran = told::run(PYTHON_OF_SETUP " '" READERS "' damo '" + records + "'");
  if (ran.status == 77) GTEST_SKIP() << ran.output;
  ASSERT_EQ(ran.status, 0) << ran.output;
  const nlohmann::json facts = nlohmann::json::parse(ran.output.substr(ran.output.rfind("{\"samples")));
  import_recording(records, path).value();
  const report::Run run = report::load_run(path).value();
  std::vector<std::uint64_t> pages(facts["pages"].size());
  for (const PageAccess& access : run.profiles.front().trace.pages)
    pages.at(access.op.value) += access.pages.end - access.pages.begin;
  EXPECT_EQ(nlohmann::json(pages), facts["pages"]);
  auto recording = Recording::open(path).value();
  Statement samples(recording.database(), "SELECT SUM(samples) FROM page_accesses");
  samples.ask();
  ASSERT_TRUE(samples.row());
  EXPECT_EQ(samples.integer(0), facts["samples"].get<std::int64_t>());
}

TEST(ImportDamon, ReadsTimesOfSeveralUnitsAndTargetsThatAreAddresses) {
  const Sampled sampled =
      parse_damon(R"([{"target_id": 18446623438842320000, "snapshots": [{"start_time": "2 m 59 s 503 ms 12 us 5 ns",
      "end_time": "3 m 1 s 1 ns", "regions": [{"start": "4 KB", "end": "8 KiB", "nr_accesses": {"samples": 1}}]}]}])")
          .value();
  EXPECT_EQ(sampled.trace.ops[0].time, Nanoseconds{1'496'987'996});
  EXPECT_EQ(sampled.trace.tensors[0].name, "target 18446623438842320000 0x1000-0x2000");
}

TEST(ImportTrace, ComesOutAsItWentIn) {
  for (const auto& file : testing::toy_trace_files()) {
    const std::string path = told::fresh_path("imported.vedette");
    import_recording(file.string(), path).value();
    std::ostringstream out;
    export_recording(path, "trace", {}, out).value();
    EXPECT_EQ(parse_trace(out.str()).value(), testing::load_trace(file)) << file;
    const auto run = report::load_run(path);
    ASSERT_TRUE(run.ok());
    ASSERT_EQ(run->steps.size(), 1u);
    EXPECT_EQ(run->steps[0].counters.peak_bytes.value, peak_bytes(testing::load_trace(file)).value);
    EXPECT_TRUE(run->ended);
  }
}

TEST(Import, SaysInASentenceWhatItCannotRead) {
  const std::string path = told::fresh_path("refused.vedette");
  const auto why = [&](const char* text) {
    const auto result = import_text(text, path);
    return result.ok() ? std::string("read") : result.error().message;
  };
  EXPECT_THAT(why(""), HasSubstr("empty"));
  EXPECT_THAT(why("hello"), HasSubstr("neither"));
  EXPECT_THAT(why("{\"format\":"), HasSubstr("trace:"));
  EXPECT_THAT(why("{}"), HasSubstr("lacks the key 'format'"));
  EXPECT_THAT(why("[]"), HasSubstr("no snapshots"));
  EXPECT_THAT(why("[{}]"), HasSubstr("lacks the list 'snapshots'"));
  EXPECT_THAT(why(R"([{"snapshots":[{"start_time":2,"end_time":1,"regions":[]}]}])"),
              HasSubstr("ends before it begins"));
  EXPECT_THAT(
      why(R"([{"snapshots":[{"start_time":0,"end_time":1,"regions":[{"start":"4 apples","end":9,"nr_accesses":1}]}]}])"),
      HasSubstr("'4 apples', which is no number"));
  EXPECT_THAT(why(R"([{"snapshots":[{"start_time":"4 5","end_time":9,"regions":[]}]}])"),
              HasSubstr("'4 5', which is no number"));
  EXPECT_THAT(
      why(R"([{"snapshots":[{"start_time":0,"end_time":1,"regions":[{"start":-1,"end":9,"nr_accesses":1}]}]}])"),
      HasSubstr("out of range"));
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::string thesis = told::fresh_path("thesis.txt");
  std::ofstream(thesis) << "years of work";
  EXPECT_THAT(import_text(two_snapshots, thesis).error().message, HasSubstr("is no recording"));
}

}  // namespace
}  // namespace vedette::imports_test
