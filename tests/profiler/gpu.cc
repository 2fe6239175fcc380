// What a recording has of a GPU beside what every run tells: the energy of each step, the stream of each op, and the
// links by their names. Recordings of an earlier schema, which lack them, are still read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/exports.h"
#include "profiler/live.h"
#include "profiler/recording.h"
#include "profiler/schema.h"
#include "profiler/told_run.h"

namespace vedette::gpu_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Machine gpu_host_and_disk() {
  Machine machine;
  machine.tiers = {{.name = "gpu:0", .capacity = 1_MiB}, {.name = "host", .capacity = 2_MiB}, {.name = "nvme"}};
  machine.whole_tensors = true;
  return machine;
}

// Two ops a step, on two streams. Op 0 waits for a fetch from the disk, op 1 runs beside an eviction to the host.
void tell_step(Recorder& recorder, std::uint64_t step) {
  const auto at = [&](std::int64_t offset) { return Nanoseconds{static_cast<std::int64_t>(step) * 1000 + offset}; };
  recorder.step_began(step, at(0));
  recorder.op_began(step, {0}, "mm", at(10));
  recorder.moved({.slow = 2, .chunk = 3, .bytes = {4096}, .issued = at(1), .started = at(2), .ended = at(9)});
  recorder.op_ran_on(step, {0}, 0);
  recorder.op_ended(step, {0}, at(20));
  recorder.op_began(step, {1}, "relu", at(20));
  recorder.moved(
      {.verb = Verb::evict, .chunk = 4, .bytes = {4096}, .issued = at(3), .started = at(4), .ended = at(30)});
  recorder.moved(
      {.verb = Verb::drop, .chunk = 5, .bytes = {4096}, .issued = at(31), .started = at(31), .ended = at(31)});
  recorder.op_ran_on(step, {1}, 1);
  recorder.op_ended(step, {1}, at(40));
  recorder.step_ran(step, "planned", 7);
  recorder.step_ended(step, at(50), {.bytes_in = {4096}, .bytes_out = {4096}, .ops = 2});
}

using Readings = std::vector<std::optional<std::uint64_t>>;

// As many steps as there are readings after the first.
std::string record(const std::string& name, const Readings& readings, bool live = false) {
  const std::string path = told::fresh_path(name);
  auto recorder = Recorder::open({.path = path, .program = "a test", .live = live}).value();
  recorder->opened(gpu_host_and_disk(), "vedette", 1_MiB, 4_KiB);
  auto next = std::make_shared<std::size_t>(0);
  recorder->counts_energy([readings, next] { return readings.at((*next)++); });
  for (std::uint64_t step = 1; step < readings.size(); ++step) tell_step(*recorder, step);
  recorder->flush();
  EXPECT_EQ(*next, readings.size()) << "one reading a step";
  if (const auto shown = read_live(::getpid()); live && shown) {
    EXPECT_EQ((*shown)[Live::energy_mj], 30u);
  }
  return path;
}

std::string csv(const std::string& path, const std::string& table) {
  std::ostringstream out;
  export_recording(path, "csv", {.table = table}, out).value();
  return out.str();
}

std::vector<std::optional<std::uint64_t>> energies(const std::string& path) {
  std::vector<std::optional<std::uint64_t>> all;
  const auto run = report::load_run(path).value();
  for (const report::StepRow& step : run.steps)
    all.push_back(step.energy ? std::optional(step.energy->millijoules) : std::nullopt);
  return all;
}

TEST(GpuRecording, HasOfEachStepWhatItsCounterWentOn) {
  const std::string path = record("energy.vedette", {1000, 1010, 1010, 1030}, true);
  EXPECT_EQ(energies(path), (Readings{10, 0, 20}));
  EXPECT_THAT(csv(path, "step_energy"),
              ::testing::MatchesRegex("step,device,millijoules,watched_ns\r\n1,gpu:0,10,[0-9]+\r\n2,gpu:0,0,[0-9]+\r\n"
                                      "3,gpu:0,20,[0-9]+\r\n"));
  const EnergyTotal total = Recording::open(path).value().energy().value();
  EXPECT_EQ(total.steps, 3u);
  EXPECT_EQ(total.millijoules, 30u);
  EXPECT_EQ(total.device, "gpu:0");
}

TEST(GpuRecording, HasNothingWhereTheCounterSaysNothingOrBeginsAnew) {
  EXPECT_EQ(energies(record("failing.vedette", {1000, 1010, std::nullopt, 1030, 1040, 5, 6})),
            (Readings{10, std::nullopt, std::nullopt, 10, std::nullopt, 1}));
  EXPECT_EQ(energies(record("none.vedette", {std::nullopt, std::nullopt, std::nullopt})),
            (Readings{std::nullopt, std::nullopt}));
}

TEST(GpuRecording, ARunOfTheCpuHasNoEnergyAndNoStream) {
  const std::string path = told::record_run("cpu.vedette", 2);
  EXPECT_EQ(energies(path), (Readings{std::nullopt, std::nullopt}));
  EXPECT_EQ(csv(path, "step_energy"), "step,device,millijoules,watched_ns\r\n");
  EXPECT_THAT(csv(path, "op_times"), HasSubstr(",1000010,1000020,131072,75536,,dram\r\n"));
  EXPECT_THAT(csv(path, "moves"), HasSubstr(",1,nvme -> dram\r\n"));
  EXPECT_THAT(csv(path, "plan_moves"), HasSubstr(",dram -> nvme\r\n"));
  std::ostringstream out;
  export_recording(path, "perfetto", {}, out).value();
  EXPECT_THAT(out.str(), Not(::testing::AnyOf(HasSubstr("energy"), HasSubstr("ran on"))));
  EXPECT_THAT(out.str(), HasSubstr("\"fetches, nvme -> dram\""));
}

// The energy of a session on a GPU is no figure of the session after it.
TEST(GpuRecording, TheNextSessionHasACounterOfItsOwn) {
  const std::string path = told::fresh_path("two.vedette");
  auto recorder = Recorder::open({.path = path, .live = false}).value();
  recorder->opened(gpu_host_and_disk(), "vedette", 1_MiB, 4_KiB);
  recorder->counts_energy([reading = std::uint64_t{0}]() mutable { return std::optional(reading += 5); });
  tell_step(*recorder, 1);
  told::tell_run(*recorder, 0);
  tell_step(*recorder, 2);
  recorder->flush();
  EXPECT_EQ(energies(path), (Readings{5, std::nullopt}));
}

TEST(GpuRecording, HasTheTablesAsTheyWereWhenLastThere) {
  const std::string path = told::fresh_path("tables.vedette");
  auto recorder = Recorder::open({.path = path, .live = false}).value();
  recorder->opened(gpu_host_and_disk(), "vedette", 1_MiB, 4_KiB);
  recorder->has_tables({.rows_on_device = 1, .device_bytes = 0, .host_bytes = (8_MiB).value});
  tell_step(*recorder, 1);
  recorder->has_tables({.rows_on_device = 90,
                        .rows_on_host = 10,
                        .moves = 1,
                        .device_bytes = (2_MiB).value,
                        .host_bytes = (6_MiB).value});
  recorder->has_tables({.rows_on_device = 95, .rows_on_host = 11, .moves = 1});  // they are freed
  recorder->flush();
  const GpuTableCounters tables = Recording::open(path).value().headline().value().origin.tables;
  EXPECT_EQ(tables.device_bytes, (2_MiB).value);
  EXPECT_EQ(tables.host_bytes, (6_MiB).value);
  EXPECT_EQ(tables.rows_on_device, 95u);
  EXPECT_EQ(tables.rows_on_host, 11u);
  EXPECT_EQ(tables.moves, 1u);
  EXPECT_EQ(report::load_run(path).value().origin.tables.rows_on_host, 11u);
}

TEST(GpuRecording, TellsStreamsDevicesAndLinksByName) {
  const std::string path = record("streams.vedette", {0, 7});
  const auto run = report::load_run(path).value();
  ASSERT_EQ(run.ops.size(), 2u);
  EXPECT_EQ(run.ops[0].stream, 0u);
  EXPECT_EQ(run.ops[1].stream, 1u);
  EXPECT_THAT(csv(path, "op_times"), HasSubstr(",stream,device\r\n1,0,"));
  EXPECT_THAT(csv(path, "op_times"), HasSubstr(",1,gpu:0\r\n"));
  const std::string moves = csv(path, "moves");
  EXPECT_THAT(moves, HasSubstr("fetch,planned,3,4096,1001,1002,1009,2,nvme -> gpu:0\r\n"));
  EXPECT_THAT(moves, HasSubstr("evict,planned,4,4096,1003,1004,1030,1,gpu:0 -> host\r\n"));
  EXPECT_THAT(moves, HasSubstr("drop,planned,5,4096,1031,1031,1031,1,\r\n")) << "it takes no link";
  std::ostringstream out;
  export_recording(path, "perfetto", {}, out).value();
  const auto trace = nlohmann::json::parse(out.str());
  std::set<std::string> said;
  for (const auto& event : trace["traceEvents"]) {
    for (const char* key : {"ran on", "link"})
      if (event["args"].contains(key))
        said.insert(event["name"].get<std::string>() + ": " + event["args"][key].get<std::string>());
    if (event["name"] == "thread_name") said.insert(event["args"]["name"].get<std::string>());
    if (event["name"] == "ProfilerStep#1") {
      EXPECT_EQ(event["args"]["energy mJ"], 7);
    }
  }
  EXPECT_THAT(said,
              ::testing::IsSupersetOf(
                  {"mm: gpu:0, stream 0", "relu: gpu:0, stream 1", "Memcpy HtoD fetch (planned): nvme -> gpu:0",
                   "Memcpy DtoH evict (planned): gpu:0 -> host", "fetches, nvme -> gpu:0", "evicts, gpu:0 -> host"}));
}

// The table as schema 4 had it, and the number; all else is the same.
constexpr const char* as_schema_4 = R"(
CREATE TABLE kept AS SELECT step, op, name, began_ns, ended_ns, resident_bytes, live_bytes FROM op_times;
ALTER TABLE steps DROP COLUMN bytes_in_place;
ALTER TABLE links DROP COLUMN alone_bytes_per_s;
DROP TABLE step_energy;
DROP TABLE stacks;
DROP TABLE tensor_stacks;
DROP TABLE op_times;
CREATE TABLE op_times(step INTEGER NOT NULL, op INTEGER NOT NULL, name INTEGER NOT NULL, began_ns INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL, resident_bytes INTEGER, live_bytes INTEGER, PRIMARY KEY(step, op)) WITHOUT ROWID;
INSERT INTO op_times SELECT * FROM kept;
DROP TABLE kept;
UPDATE meta SET value = '4' WHERE key = 'schema';
PRAGMA user_version=4;
)";

TEST(OlderRecording, AnswersAsBeforeAndKnowsNoEnergy) {
  const std::string path = told::record_run("older.vedette", 3);
  Database::open(path, Database::Mode::create).value().run(as_schema_4);
  auto recording = Recording::open(path);
  ASSERT_TRUE(recording) << recording.error().message;
  const Headline h = recording->headline().value();
  EXPECT_EQ(h.origin.schema, 4);
  EXPECT_EQ(h.steps, 3u);
  EXPECT_EQ(h.op_times, 9u);
  EXPECT_EQ(recording->energy().value().steps, 0u);
  EXPECT_EQ(energies(path), (Readings{std::nullopt, std::nullopt, std::nullopt}));
  EXPECT_EQ(report::load_run(path).value().ops.size(), 3u);
  EXPECT_THAT(csv(path, "op_times"),
              AllOf(HasSubstr(",stream,device\r\n"), HasSubstr(",1000010,1000020,131072,75536,,dram\r\n")));
  for (const std::string_view table : exported_tables()) EXPECT_NE(csv(path, std::string(table)), "") << table;
  Database::open(path, Database::Mode::create).value().run("DROP TABLE op_times");
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("it lacks the table op_times"));
  EXPECT_FALSE(report::load_run(path).ok());
}

// samples/schemaN.sql is what the vedette of then wrote of traces/chain4.json, as `sqlite3 FILE .dump` gives it.
TEST(OlderRecording, OfEachSchemaIsReadAsItWasWritten) {
  const auto text_of = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  Trace written = parse_trace(text_of(TRACES "/chain4.json")).value();
  for (std::int64_t schema = oldest_recording_schema; schema <= recording_schema; ++schema) {
    SCOPED_TRACE(schema);
    const std::string path = told::fresh_path("sample" + std::to_string(schema) + ".vedette");
    const std::string sql = text_of(SAMPLES "/schema" + std::to_string(schema) + ".sql");
    ASSERT_FALSE(sql.empty()) << "a sample of each schema lies beside this test";
    {
      Database database = Database::open(path, Database::Mode::create).value();
      database.run(sql.c_str());
      ASSERT_FALSE(database.failure()) << database.failure()->message;
    }
    auto recording = Recording::open(path);
    ASSERT_TRUE(recording) << recording.error().message;
    EXPECT_EQ(recording->headline().value().origin.schema, schema);
    const report::Run run = report::load_run(path).value();
    ASSERT_EQ(run.profiles.size(), 1u);
    EXPECT_EQ(run.profiles[0].trace.tensors, written.tensors);
    EXPECT_EQ(run.profiles[0].trace.ops, written.ops);
    for (const std::string_view table : exported_tables()) EXPECT_NE(csv(path, std::string(table)), "") << table;
  }
}

}  // namespace
}  // namespace vedette::gpu_test
