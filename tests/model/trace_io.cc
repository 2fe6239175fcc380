// vedette-trace-1: what is right comes back as it was, what is wrong is named by its place, and nothing crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/generate_trace.h"
#include "support/traces.h"

namespace vedette::trace_io_test {
namespace {

constexpr std::string_view good =
    R"({"format":"vedette-trace-1","name":"n","source":"s","device":"d","notes":["a note"],
"tensors":[{"id":0,"name":"w","bytes":8,"kind":"weight","persistent":true},
{"id":1,"name":"x","bytes":16,"kind":"activation","persistent":false}],
"ops":[{"id":0,"name":"f","layer":"a","phase":"forward","ns":5,"reads":[0],"writes":[1],"workspace_bytes":3},
{"id":1,"name":"b","layer":null,"phase":"backward","ns":6,"reads":[1,0],"writes":[0],"workspace_bytes":0,"frees":[1]}]})";

std::string with(std::string_view from, std::string_view to) {
  std::string text(good);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ParseTrace, ReadsEveryField) {
  const Trace trace = parse_trace(good).value();
  EXPECT_EQ(trace.name, "n");
  EXPECT_EQ(trace.notes, std::vector<std::string>{"a note"});
  ASSERT_EQ(trace.tensors.size(), 2u);
  EXPECT_EQ(trace.tensors[0], (Tensor{.name = "w", .bytes = {8}, .kind = TensorKind::weight, .persistent = true}));
  ASSERT_EQ(trace.ops.size(), 2u);
  EXPECT_EQ(trace.ops[0].layer, LayerIndex{0});
  EXPECT_EQ(trace.ops[0].workspace, Bytes{3});
  EXPECT_EQ(trace.layers, (std::vector<Layer>{{.name = "a", .phase = Phase::forward}}));
  EXPECT_EQ(trace.ops[1].layer, std::nullopt);
  EXPECT_EQ(trace.ops[1].phase, Phase::backward);
  EXPECT_EQ(trace.ops[1].time, Nanoseconds{6});
  EXPECT_EQ(trace.ops[1].reads, (std::vector<TensorIndex>{{0}, {1}}));
  EXPECT_EQ(trace.ops[1].frees, (std::vector<TensorIndex>{{1}}));
}

TEST(ParseTrace, GivesOneLayerToEachPairOfNameAndPhase) {
  const Trace trace = parse_trace(with("\"layer\":null", "\"layer\":\"a\"")).value();
  EXPECT_EQ(trace.layers,
            (std::vector<Layer>{{.name = "a", .phase = Phase::forward}, {.name = "a", .phase = Phase::backward}}));
}

struct Wrong {
  const char *from, *to, *says;
};

class ParseTraceRefuses : public ::testing::TestWithParam<Wrong> {};

TEST_P(ParseTraceRefuses, AndNamesThePlace) {
  const Result<Trace> read = parse_trace(with(GetParam().from, GetParam().to));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().cause, Cause::malformed_input);
  EXPECT_THAT(read.error().message, ::testing::HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Each, ParseTraceRefuses,
    ::testing::Values(
        Wrong{"vedette-trace-1", "vedette-trace-2", "is a vedette-trace-2; a vedette-trace-1 is wanted here"},
        Wrong{"\"device\":\"d\",", "", "lacks the key 'device'"},
        Wrong{"\"device\":\"d\"", "\"device\":\"\"", "device is not a non-empty string"},
        Wrong{"\"device\":\"d\"", "\"device\":\"d\",\"more\":1", "unknown key 'more'"},
        Wrong{"\"device\":\"d\"", "\"device\":\"d\",\"device\":\"d\"", "'device' twice"},
        Wrong{"[\"a note\"]", "[7]", "notes: is not a list of strings"},
        Wrong{"{\"id\":0,\"name\":\"w\"", "{\"id\":7,\"name\":\"w\"", "tensor 0: id"},
        Wrong{"\"bytes\":16", "\"bytes\":0", "tensor 1: bytes"},
        Wrong{"\"bytes\":16", "\"bytes\":-16", "tensor 1: bytes"},
        Wrong{"\"bytes\":16", "\"bytes\":16.0", "tensor 1: bytes"},
        Wrong{"\"bytes\":16", "\"bytes\":99999999999999999999999", "tensor 1: bytes"},
        Wrong{"\"bytes\":16", "\"bytes\":4611686018427387904", "tensor 1: bytes: the sum"},
        Wrong{"\"bytes\":16", "\"bytes\":true", "tensor 1: bytes"},
        Wrong{"\"activation\"", "\"activaton\"", "tensor 1: kind is 'activaton'"},
        Wrong{"\"persistent\":false", "\"persistent\":0", "tensor 1: persistent"},
        Wrong{"\"phase\":\"forward\"", "\"phase\":\"sideways\"", "op 0: phase"},
        Wrong{"\"layer\":\"a\"", "\"layer\":3", "op 0: layer"}, Wrong{"\"ns\":6", "\"ns\":0", "op 1: ns"},
        Wrong{"\"ns\":6", "\"ns\":18446744073709551615", "op 1: ns"},
        Wrong{"\"ns\":6", "\"ns\":4611686018427387904", "op 1: ns: the sum over all ops passes 4611686018427387904"},
        Wrong{"\"workspace_bytes\":3", "\"workspace_bytes\":-3", "op 0: workspace_bytes"},
        Wrong{"\"workspace_bytes\":3", "\"workspace_bytes\":4611686018427387904",
              "op 0: workspace_bytes: the sum over all ops and tensors passes 4611686018427387904"},
        Wrong{"\"format\":\"vedette-trace-1\",\"name\"", "\"format\":\"vedette-plan-1\",\"home\"",
              "trace: the file is a vedette-plan-1; a vedette-trace-1 is wanted here"},
        Wrong{"\"vedette-trace-1\"", "\"a word\"", "names an unknown format"},
        Wrong{"\"reads\":[1,0]", "\"reads\":[1,2]", "op 1: reads has an id out of range"},
        Wrong{"\"reads\":[1,0]", "\"reads\":[1,-1]", "op 1: reads has an id out of range"},
        Wrong{"\"reads\":[1,0]", "\"reads\":[1,1]", "op 1: reads names an id twice"},
        Wrong{"\"reads\":[1,0]", "\"reads\":1", "op 1: reads is not a list"},
        Wrong{"\"writes\":[1]", "\"writes\":[]", "op 1: reads tensor 1 before any write"},
        Wrong{"\"frees\":[1]", "\"frees\":[0]", "op 1: frees the persistent tensor 0"},
        Wrong{"\"workspace_bytes\":3", "\"workspace_bytes\":3,\"frees\":[1]",
              "op 1: accesses tensor 1 after it was freed"},
        Wrong{"\"tensors\":[", "\"tensors\":[],\"ignored\":[", "unknown key 'ignored'"},
        Wrong{"\"ops\":[", "\"ops\":7,\"notes2\":[", "unknown key"}));

TEST(ParseTrace, RefusesATensorThatIsNeverUsed) {
  const Result<Trace> read = parse_trace(with(
      "],\n\"ops\"", ",{\"id\":2,\"name\":\"y\",\"bytes\":1,\"kind\":\"activation\",\"persistent\":false}],\n\"ops\""));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, ::testing::HasSubstr("tensor 2: is never accessed"));
}

TEST(ParseTrace, RefusesAByteOrderMarkAndBrokenUtf8) {
  EXPECT_FALSE(parse_trace("\xef\xbb\xbf" + std::string(good)).ok());
  EXPECT_FALSE(parse_trace(with("a note", "a \xff note")).ok());
}

TEST(ParseTrace, SurvivesEveryPrefix) {
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(parse_trace(good.substr(0, length)).ok()) << length;
}

TEST(ParseTrace, SurvivesEveryByteChanged) {
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (char byte : {'0', '9', '"', '{', '}', '[', ']', ',', '-', 'e', '.', '\0', '\xff'}) {
      std::string text(good);
      text[at] = byte;
      const Result<Trace> read = parse_trace(text);
      EXPECT_TRUE(read.ok() || !read.error().message.empty());
    }
  }
}

TEST(ParseTrace, SurvivesValuesOfOtherTypesAtTheTop) {
  for (const char* text : {"", "null", "[]", "{}", "7", "\"vedette-trace-1\"", "{\"format\":7}", "{\"tensors\":{}}"}) {
    EXPECT_FALSE(parse_trace(text).ok()) << text;
  }
}

TEST(ParseTrace, SurvivesDeepNesting) {
  EXPECT_FALSE(parse_trace(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(parse_trace(with("[\"a note\"]", std::string(100'000, '[') + std::string(100'000, ']'))).ok());
}

TEST(FormatTrace, KeepsWhatWasTried) {
  Trace trace = parse_trace(good).value();
  EXPECT_EQ(trace.ops[0].runs_again, std::nullopt);
  trace.ops[0].runs_again = true;
  trace.ops[1].runs_again = false;
  EXPECT_EQ(parse_trace(format_trace(trace)).value(), trace);
  EXPECT_FALSE(parse_trace(with("\"ns\":5", "\"runs_again\":1,\"ns\":5")));
}

TEST(FormatTrace, ComesBackAsItWas) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Trace trace = testing::generate_trace(seed, testing::random_shape(seed));
    trace.notes = {"quotes \" and \\ and \n", "umlaut \xc3\xa4"};
    EXPECT_EQ(parse_trace(format_trace(trace)).value(), trace) << "seed " << seed;
  }
}

TEST(ToyTraces, AreReadAndComeBack) {
  const auto files = testing::toy_trace_files();
  ASSERT_GE(files.size(), 12u);
  for (const auto& file : files) {
    const Result<Trace> trace = parse_trace(testing::read_text(file));
    ASSERT_TRUE(trace.ok()) << file << ": " << trace.error().message;
    EXPECT_EQ(parse_trace(format_trace(*trace)).value(), *trace) << file;
  }
}

}  // namespace
}  // namespace vedette::trace_io_test
