// What PyTorch and mlc-chakra wrote, read as steps. foreign/ holds files of theirs: two steps of a small perceptron, by
// torch.profiler.ExecutionTraceObserver, by mlc-chakra's converter from that, and by torch.cuda.memory._dump_snapshot.
#include "profiler/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "profiler/exports.h"
#include "profiler/imports.h"
#include "profiler/pickle.h"
#include "profiler/report/report.h"
#include "profiler/told_run.h"

namespace vedette::foreign_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string fixture(const char* name) { return unpacked(bytes_of(FOREIGN_FILES "/" + std::string(name))).value(); }

std::string why(std::string_view bytes) {
  const auto read = parse_foreign(bytes);
  return read.ok() ? "read" : read.error().message;
}

void expect_sound(const Trace& trace) {
  const auto again = parse_trace(format_trace(trace));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(peak_bytes(*again), peak_bytes(trace));
}

// vedette.estimate found a peak of 140,160 bytes in the same step, by torch's dispatcher: a scalar of 8 bytes less.
TEST(ExecutionTrace, HasTheTensorsOfTheLastWholeStep) {
  const Trace trace = parse_foreign(fixture("mlp.json.gz")).value();
  expect_sound(trace);
  EXPECT_EQ(peak_bytes(trace), Bytes{140'168});
  EXPECT_EQ(largest_op_bytes(trace), Bytes{65'536});
  EXPECT_THAT(trace.notes, ElementsAre(AllOf(HasSubstr("neither times nor lives"), HasSubstr("step 1 of 2 is taken"))));
  std::vector<std::string> forward;
  std::uint64_t weights = 0;
  for (const Op& op : trace.ops)
    if (op.phase == Phase::forward) forward.push_back(op.name);
  for (const Tensor& t : trace.tensors) weights += t.kind == TensorKind::weight ? t.bytes.value : 0;
  EXPECT_THAT(forward, ElementsAre("aten::addmm", "aten::copy_", "aten::clamp_min", "aten::addmm", "aten::copy_",
                                   "aten::cross_entropy_loss", "aten::_log_softmax", "aten::nll_loss_forward",
                                   "aten::ones_like", "aten::fill_"))
      << "callers that hand on, views and allocations are no ops";
  EXPECT_EQ(weights, 2u * 4 * (64 * 128 + 128 + 128 * 10 + 10)) << "with the optimizer's momentum";
}

TEST(Chakra, IsTheSameStepAsTheExecutionTraceItWasMadeFrom) {
  const Trace chakra = parse_foreign(fixture("mlp.et.gz")).value(),
              trace = parse_foreign(fixture("mlp.json.gz")).value();
  expect_sound(chakra);
  EXPECT_EQ(chakra.source, chakra_format);
  EXPECT_EQ(peak_bytes(chakra), peak_bytes(trace));
  EXPECT_EQ(chakra.ops.size(), trace.ops.size());
  EXPECT_EQ(chakra.tensors.size(), trace.tensors.size());
}

// torch.cuda.memory_stats()["requested_bytes.all.peak"] was 270,720 in the program that wrote it.
TEST(MemorySnapshot, HasThePeakThatTorchCounted) {
  const Trace trace = parse_foreign(fixture("mlp.pickle")).value();
  expect_sound(trace);
  EXPECT_EQ(peak_bytes(trace), Bytes{270'720});
  EXPECT_THAT(trace.notes, ElementsAre(HasSubstr("tells sizes and lives and not uses")));
}

TEST(MemorySnapshot, IsOurOwnExportReadBack) {
  std::ostringstream out;
  export_recording(told::record_run("snapshot.vedette", 2), "memory-viz", {}, out).value();
  const Trace trace = parse_foreign(out.str()).value();
  expect_sound(trace);
  EXPECT_EQ(peak_bytes(trace), Bytes{75'536}) << "on the device that held more";
  EXPECT_THAT(trace.notes.front(), HasSubstr("device 0 of 2"));
}

// {"segments": [...], "device_traces": [[...]]}; an event is (action, address, bytes, microseconds).
struct Event {
  const char* action;
  std::int64_t address, bytes, when;
};
std::string snapshot_of(const std::vector<Event>& events, std::int64_t active_at_the_end) {
  std::ostringstream out;
  Pickle pickle(out);
  pickle.begin_dict();
  pickle.text("segments");
  pickle.begin_list();
  pickle.begin_dict();
  pickle.entry("device", 0), pickle.entry("address", 4096), pickle.text("blocks");
  pickle.begin_list();
  pickle.begin_dict();
  pickle.entry("size", active_at_the_end), pickle.entry("state", "active_allocated");
  pickle.end_dict(), pickle.end_list(), pickle.end_dict(), pickle.end_list();
  pickle.text("device_traces");
  pickle.begin_list(), pickle.begin_list();
  for (const Event& event : events) {
    pickle.begin_dict();
    pickle.entry("action", event.action), pickle.entry("addr", event.address), pickle.entry("size", event.bytes);
    pickle.entry("time_us", event.when), pickle.text("frames");
    pickle.begin_list();
    for (const char* file : {"/site/torch/nn/linear.py", "train.py"}) {
      pickle.begin_dict();
      pickle.entry("name", file[0] == '/' ? "forward" : "my_step"), pickle.entry("filename", file);
      pickle.end_dict();
    }
    pickle.end_list(), pickle.end_dict();
  }
  pickle.end_list(), pickle.end_list(), pickle.end_dict(), pickle.end();
  return out.str();
}

TEST(MemorySnapshot, KnowsWhatLivedBeforeAndWhatLivesOn) {
  const Trace trace = parse_foreign(snapshot_of({{"alloc", 64, 1000, 10},
                                                 {"segment_alloc", 0, 1 << 20, 11},
                                                 {"free_requested", 64, 1000, 11},
                                                 {"free_completed", 32, 500, 12},
                                                 {"free_completed", 64, 1000, 15},
                                                 {"alloc", 64, 3000, 20}},
                                                7000))
                          .value();
  expect_sound(trace);
  ASSERT_EQ(trace.tensors.size(), 4u);
  EXPECT_EQ(trace.tensors[0].name, "my_step") << "the innermost frame that is the program's own";
  EXPECT_EQ(trace.tensors[1].bytes, Bytes{500});
  EXPECT_TRUE(trace.tensors[3].persistent) << "active at the end, and never allocated";
  EXPECT_EQ(peak_bytes(trace), Bytes{7000 + 3000}) << "the last one is allocated when the others are free";
  std::vector<std::string> names;
  for (const Op& op : trace.ops) names.push_back(op.name);
  EXPECT_THAT(names,
              ElementsAre("before the history", "alloc my_step", "free from before", "free my_step", "alloc my_step"));
  EXPECT_EQ(trace.ops[1].time, Nanoseconds{2001});
}

TEST(ForeignTimes, AreTheDevicesWhereKernelsAreTold) {
  const auto node = [](int id, int parent, const char* name, const char* in, const char* out, const char* more) {
    return R"({"id": )" + std::to_string(id) + R"(, "ctrl_deps": )" + std::to_string(parent) + R"(, "name": ")" + name +
           R"(", "inputs": {"values": [)" + in + R"(]}, "outputs": {"values": [)" + out + "]}" + more + "}";
  };
  const std::string text =
      R"({"schema": "1.1.1-chakra.0.0.4", "nodes": [)" +
      node(2, 1, "aten::mm", R"([8,9,0,100,4,"cuda:0"])", R"([10,11,0,50,4,"cuda:0"])", R"(, "exclusive_dur": 7)") +
      "," + node(3, 2, "gemm", "", "", R"(, "cat": "kernel", "exclusive_dur": 31.5)") + "," +
      node(4, 1, "aten::relu_", R"([10,11,0,50,4,"cuda:0"])", R"([10,11,0,50,4,"cuda:0"])", R"(, "exclusive_dur": 5)") +
      "]}";
  const Trace trace = parse_foreign(text).value();
  expect_sound(trace);
  ASSERT_EQ(trace.ops.size(), 2u);
  EXPECT_EQ(trace.ops[0].time, Nanoseconds{31'501});
  EXPECT_EQ(trace.ops[1].time, Nanoseconds{1}) << "no kernel of it is in the trace";
  EXPECT_THAT(trace.ops[1].writes, ElementsAre(TensorIndex{1})) << "without a schema the name tells";
  EXPECT_THAT(trace.notes.front(), ::testing::StartsWith("An execution trace tells no lives"));
}

TEST(Foreign, BecomesARecordingThatSaysWhatIsAssumed) {
  const std::string path = told::fresh_path("foreign.vedette");
  for (const char* name : {"mlp.json.gz", "mlp.et.gz", "mlp.pickle"}) {
    SCOPED_TRACE(name);
    import_recording(FOREIGN_FILES "/" + std::string(name), path).value();
    const report::Run run = report::load_run(path).value();
    const Trace trace = parse_foreign(fixture(name)).value();
    EXPECT_EQ(run.origin.imported, trace.source);
    EXPECT_EQ(run.origin.assumed, trace.notes.front());
    std::ostringstream out;
    export_recording(path, "trace", {}, out).value();
    const Trace exported = parse_trace(out.str()).value();
    EXPECT_TRUE(has_assumptions(exported));
    EXPECT_EQ(peak_bytes(exported), peak_bytes(trace));
  }
}

// Each would run a command, import a module or build an object in Python's own unpickler.
TEST(Pickles, AreDataAndNeverRun) {
  const std::string mark = told::fresh_path("ran");
  for (const std::string& evil :
       {"\x80\x02"
        "cposix\nsystem\nX" +
            std::string("\x08\0\0\0", 4) + "touch " + mark + "\x85R.",
        std::string("\x80\x04\x8c\x05posix\x8c\x06system\x93."), std::string("\x80\x02(ios\nsystem\n."),
        std::string("\x80\x02]Pfile\n."), std::string("\x80\x02]}b."), std::string("\x80\x02\x82\x01.")}) {
    EXPECT_THAT(why(evil), HasSubstr("makes more than plain data, and is not run")) << evil;
    EXPECT_FALSE(std::filesystem::exists(mark));
  }
}

TEST(Foreign, SaysInASentenceWhatItCannotRead) {
  using namespace std::string_literals;
  EXPECT_THAT(why("\x80\x04}."), HasSubstr("no 'device_traces'"));
  EXPECT_THAT(why(snapshot_of({}, 10)), HasSubstr("call torch.cuda.memory._record_memory_history() before the step"));
  EXPECT_THAT(why(snapshot_of({{"alloc", 1, -5, 1}}, 10)), HasSubstr("event 0 has no address or no size"));
  const std::string whole = fixture("mlp.pickle");
  EXPECT_THAT(why(whole.substr(0, whole.size() / 2)), HasSubstr("ends too soon; write or copy it anew"));
  EXPECT_THAT(why("\x80\x04\x94."s), HasSubstr("lacks its operand"));
  EXPECT_THAT(why("\x80\x04]\x94h\x00h\x00"
                  "a."s),
              HasSubstr("no 'device_traces'"))
      << "a list in itself";
  EXPECT_THAT(why(R"({"schema": "1.1.1", "nodes": 5})"), HasSubstr("lacks the list 'nodes'"));
  EXPECT_THAT(why(R"({"schema": "1.0.1", "nodes": [{"id": 1}]})"), HasSubstr("names no 'ctrl_deps'"));
  EXPECT_THAT(why(R"({"schema": "1.1.1", "nodes": []})"), HasSubstr("no operator in it uses a tensor"));
  EXPECT_THAT(why(R"({"schema": "1.1.1", )"), HasSubstr("is not JSON"));
  EXPECT_THAT(why(R"({"schema": "1", "nodes": [{"id": 1, "ctrl_deps": 0, "name": "a::b",
    "inputs": {"values": [[1, 2, 0, 90000000000000, 16, "cpu"]]}}]})"),
              HasSubstr("a tensor has no size that can be"));
  const std::string et = fixture("mlp.et.gz");
  EXPECT_THAT(why(et.substr(0, et.size() / 2)), HasSubstr("ends too soon"));
  // a node whose arguments are "[[[[..."
  const std::string deep = std::string(200, '['), io = "\x0a\xc8\x01" + deep, node = "\x42\xcb\x01" + io;
  EXPECT_THAT(why("\x03\x0a\x01v\xce\x01" + node), HasSubstr("node 0: arguments are no list of Python's"));
}

}  // namespace
}  // namespace vedette::foreign_test
