// The command `vedette`, run by tests: files for it, and one sentence with a status where it refuses.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>

#include "profiler/told_run.h"
#include "support/traces.h"

namespace vedette {

inline told::Ran vedette(const std::string& arguments) { return told::run(std::string(VEDETTE_CLI) + " " + arguments); }

inline std::string toy(const std::string& name) {
  for (const auto& file : testing::toy_trace_files()) {
    if (file.stem() == name) return file.string();
  }
  return name;
}

inline std::string written(const std::string& name, const std::string& text) {
  const std::string path = told::fresh_path(name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string text_of(const std::string& path) { return testing::read_text(path); }

// Two ops, one activation; `from` becomes `to`.
inline std::string trace_with(const std::string& from, const std::string& to) {
  std::string text = R"({"format":"vedette-trace-1","name":"two","source":"test","device":"none","notes":[],
"tensors":[{"id":0,"name":"w","bytes":64,"kind":"weight","persistent":true},{"id":1,"name":"x","bytes":16,"kind":"activation","persistent":false}],
"ops":[{"id":0,"name":"make","layer":null,"phase":"forward","ns":5,"reads":[0],"writes":[1],"workspace_bytes":0},
{"id":1,"name":"use","layer":null,"phase":"forward","ns":6,"reads":[0,1],"writes":[],"workspace_bytes":0}]})";
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error(from);
  return text.replace(at, from.size(), to);
}

// One line, beginning with who speaks.
inline void expect_one_sentence(const told::Ran& ran, int status, const std::string& says) {
  EXPECT_EQ(ran.status, status) << ran.output;
  EXPECT_THAT(ran.output, ::testing::AllOf(::testing::StartsWith("vedette"), ::testing::HasSubstr(says)));
  EXPECT_EQ(std::count(ran.output.begin(), ran.output.end(), '\n'), 1) << ran.output;
}

}  // namespace vedette
