// `vedette top` of a program that records: its lines, and all of them for other programs.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/sentences.h"
#include "profiler/live.h"

namespace vedette::top_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Top : public ::testing::Test {
 protected:
  Top() {
    told::tell_run(*recorder_, 3);
    recorder_->flush();
    if (recorder_->live() != nullptr) recorder_->live()->set(Live::bound_ns, 80);
  }
  void SetUp() override {
    if (!read_live(::getpid())) GTEST_SKIP() << "no page can be shown in " << live_directory;
  }
  const std::string pid_ = std::to_string(::getpid());
  const std::unique_ptr<Recorder> recorder_ =
      Recorder::open({.path = told::fresh_path("top.vedette"), .program = "told"}).value();
};

TEST_F(Top, TellsOtherProgramsAllOfIt) {
  const told::Ran ran = vedette("top " + pid_ + " --once --json --endurance 600TBW");
  ASSERT_EQ(ran.status, 0) << ran.output;
  const auto json = nlohmann::json::parse(ran.output).at(0);
  EXPECT_EQ(json["program"], "told");
  EXPECT_EQ(json["disk_bytes_out"], 3 * 65536);
  EXPECT_EQ(json["steps_ns"], 2'000'100);
  EXPECT_EQ(json["bytes_in_place"], 3 * 4096);
  EXPECT_EQ(json["bound_ns"], 80);
  EXPECT_DOUBLE_EQ(json["speed_of_bound"].get<double>(), 0.8);
  const double a_day = 3 * 65536.0 / 2'000'100 * 86'400e9;
  EXPECT_NEAR(json["disk_bytes_a_day"].get<double>(), a_day, 1e6);
  EXPECT_NEAR(json["endurance_share_a_day"].get<double>(), a_day / 600e12, 1e-3);
  EXPECT_EQ(json["locked_bytes"], 0);
  std::uint64_t all = 0;
  ASSERT_EQ(json["heat_bytes"].size(), 8u);
  for (const auto& bytes : json["heat_bytes"]) all += bytes.get<std::uint64_t>();
  EXPECT_EQ(all, 75536u) << "what lives at the last op";
  EXPECT_TRUE(
      nlohmann::json::parse(vedette("top " + pid_ + " --once --json").output).at(0)["endurance_share_a_day"].is_null());
}

TEST_F(Top, ShowsHeatTheBoundAndTheDisk) {
  const std::string text = vedette("top " + pid_ + " --once --endurance 600TBW").output;
  for (const char* part : {"heat      hot |", "| cold: ", "80 % of the bound", "TB a day", "% of its 600 TBW",
                           "to disk", "in place        12.0 KiB"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(vedette("top " + pid_ + " --once").output, Not(HasSubstr("TBW")));
}

TEST(Endurance, IsARatingOrASentence) {
  for (const char* verb : {"top --once", "doctor --no-disk", "report x", "fits x"}) {
    SCOPED_TRACE(verb);
    expect_one_sentence(vedette(std::string(verb) + " --endurance 600TB"), 1, "is no rating of a drive; write 600TBW");
  }
}

}  // namespace
}  // namespace vedette::top_test
