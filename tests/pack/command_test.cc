// `vedette pack` as a user meets it: the program is run, its output read.
#include "support/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using vedette::testing::Answer;

class PackCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "vedette-pack-XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
    std::ofstream(directory_ / "lives.csv") << "id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,4\n";
  }
  void TearDown() override { fs::remove_all(directory_); }

  Answer pack(const std::string& options) const {
    return vedette::testing::run(std::string(VEDETTE_CLI) + " pack " + directory_.string() + "/" + options + " 2>&1");
  }

  fs::path directory_;
};

TEST_F(PackCommand, ReportsInJson) {
  const Answer answer = pack("lives.csv --json");
  ASSERT_EQ(answer.status, 0) << answer.text;
  const auto json = nlohmann::json::parse(answer.text);
  EXPECT_EQ(json.at("n"), 3);
  EXPECT_EQ(json.at("live_max"), 8);
  EXPECT_EQ(json.at("peak"), 8);
  EXPECT_EQ(json.at("ratio"), 1.0);
  EXPECT_TRUE(json.at("ns").is_number_unsigned());
  EXPECT_EQ(json.at("valid"), true);
}

TEST_F(PackCommand, WritesOffsets) {
  ASSERT_EQ(pack("lives.csv -o " + (directory_ / "out.csv").string()).status, 0);
  std::ifstream out(directory_ / "out.csv");
  std::string line;
  std::getline(out, line);
  EXPECT_EQ(line, "id,lower,upper,size,offset");
}

TEST_F(PackCommand, FailsInOneSentenceWhereNothingFits) {
  const Answer answer = pack("lives.csv --capacity 7");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.text, HasSubstr("no plan within 7 bytes"));
}

TEST_F(PackCommand, SaysWhatIsWrongWithAFile) {
  std::ofstream(directory_ / "bad.csv") << "id,lower,upper,size\na,0,2,many\n";
  const Answer answer = pack("bad.csv");
  EXPECT_EQ(answer.status, 1);
  EXPECT_THAT(answer.text, HasSubstr("bad.csv: line 2"));
  EXPECT_EQ(pack("missing.csv").status, 1);
  EXPECT_THAT(pack("").text, HasSubstr("it is a directory"));
}

TEST_F(PackCommand, PacksWhatARecordingsStepHolds) {
  const std::string trace = directory_.string() + "/step.json", recording = directory_.string() + "/step.vedette";
  std::ofstream(trace) << R"({"format":"vedette-trace-1","name":"two","source":"test","device":"none","notes":[],
"tensors":[{"id":0,"name":"w","bytes":64,"kind":"weight","persistent":true},{"id":1,"name":"x","bytes":128,"kind":"activation","persistent":false}],
"ops":[{"id":0,"name":"make","layer":null,"phase":"forward","ns":5,"reads":[0],"writes":[1],"workspace_bytes":0}]})";
  ASSERT_EQ(
      vedette::testing::run(std::string(VEDETTE_CLI) + " import '" + trace + "' -o '" + recording + "' 2>&1").status,
      0);
  for (const char* const file : {"step.json", "step.vedette"}) {
    const Answer answer = pack(std::string(file) + " --json");
    ASSERT_EQ(answer.status, 0) << answer.text;
    EXPECT_EQ(nlohmann::json::parse(answer.text).at("peak"), 192) << file;
  }
}

TEST_F(PackCommand, RefusesCapacitiesBelowAByte) {
  for (const char* const capacity : {"0", "-1", "99999999999999999999"})
    EXPECT_EQ(pack(std::string("lives.csv --capacity ") + capacity).status, 2) << capacity;
}

}  // namespace
