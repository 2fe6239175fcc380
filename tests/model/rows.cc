// Rows as text.
#include "vedette/rows.h"

#include <gtest/gtest.h>

namespace vedette::rows_test {
namespace {

Trace trace() {
  Trace made;
  made.tensors = {{.name = "always near", .bytes = {30}, .persistent = true, .shape = {}, .site = {}},
                  {.name = "x", .bytes = {30}, .shape = {}, .site = {}}};
  made.ops.resize(3);
  return made;
}

TEST(Rows, SurviveTheirText) {
  const Rows rows{.always_near = {0},
                  .held = {10},
                  .chunk = {10},
                  .chunks = 9,
                  .steps = {{{.op = {0}, .chunks = {{0, 1}, {4, 9}}}, {.op = {2}, .chunks = {{3, 4}}}},
                            {},
                            {{.op = {1}, .chunks = {{8, 9}}}}}};
  EXPECT_EQ(parse_rows(format_rows(rows), trace()).value(), rows);
}

TEST(Rows, SayWhatIsWrongInOneSentence) {
  const std::string good =
      R"({"format":"vedette-rows-1","always_near":0,"held_bytes":10,"chunk_bytes":10,"chunks":9,"steps":[[{"op":1,"chunks":[[0,1]]}]]})";
  ASSERT_TRUE(parse_rows(good, trace()));
  const struct {
    std::string from, to, says;
  } cases[] = {
      {good, "{", "not JSON"},
      {good, "[]", "is not an object"},
      {"rows-1", "rows-2", "the file is a vedette-rows-2; a vedette-rows-1 is wanted here"},
      {"\"chunks\":9", "\"chunk\":9", "unknown key 'chunk'"},
      {"\"chunks\":9,", "", "lacks the key 'chunks'"},
      {"\"held_bytes\":10", "\"held_bytes\":-1", "held_bytes is not an integer"},
      {"\"held_bytes\":10", "\"held_bytes\":31", "held_bytes is more than tensor 0 has"},
      {"\"chunk_bytes\":10", "\"chunk_bytes\":0", "chunk_bytes or chunks is 0 or too large"},
      {"\"always_near\":0", "\"always_near\":2", "is no tensor of the trace"},
      {"\"always_near\":0", "\"always_near\":1", "does not live always"},
      {"[[{\"op\":1,\"chunks\":[[0,1]]}]]", "[]", "steps are none"},
      {"[[0,1]]", "[]", "step 0, row 0 names no chunks"},
      {"[[0,1]]", "[[0,1,2]]", "a range that is not two numbers"},
      {"[[0,1]]", "[[1,1]]", "empty or beyond the last"},
      {"[[0,1]]", "[[8,10]]", "empty or beyond the last"},
      {"[[0,1]]", "[[0,2],[2,3]]", "touch or are out of order"},
      {"\"op\":1", "\"op\":3", "names an op that the trace does not have"},
      {"\"op\":1,", "\"op\":1,\"x\":1,", "has an unknown key"},
      {"[[{\"op\":1,", "[[{\"op\":1,\"chunks\":[[0,1]]},{\"op\":1,", "step 0, row 1 is out of the order of ops"},
  };
  for (const auto& each : cases) {
    std::string text = good;
    text.replace(text.find(each.from), each.from.size(), each.to);
    const auto rows = parse_rows(text, trace());
    ASSERT_FALSE(rows) << text;
    EXPECT_EQ(rows.error().cause, Cause::malformed_input);
    EXPECT_NE(rows.error().message.find(each.says), std::string::npos) << rows.error().message;
  }
}

}  // namespace
}  // namespace vedette::rows_test
