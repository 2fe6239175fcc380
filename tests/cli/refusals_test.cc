// Command lines that name nothing to do, or two things at once: one sentence, and nothing is done.
#include "cli/sentences.h"

namespace vedette {
namespace {

TEST(ANumber, IsFiniteAndInItsRange) {
  const std::string recording = told::record_run("numbers.vedette", 1);
  for (const char* number : {"nan", "inf", "-1", "0", "1e300", "two"}) {
    SCOPED_TRACE(number);
    const std::string says = std::string("'") + number + "' is no number from ";
    expect_one_sentence(vedette(std::string("top --once --interval ") + number), 2,
                        "--interval: " + says + "0.05 to 3600");
    expect_one_sentence(vedette("report --text " + recording + " --plain-ms " + number), 2, "--plain-ms: " + says);
    if (number != std::string("0"))
      expect_one_sentence(vedette("report --text " + recording + " --simulate-seconds " + number), 2,
                          "--simulate-seconds: " + says + "0 to 1000000");
  }
}

TEST(AReport, RefusesStepsThatTheRecordingLacksAndSeveralPolicies) {
  const std::string report = "report --text " + told::record_run("steps.vedette", 3);
  expect_one_sentence(vedette(report + " --step 99"), 1, "--step: the recording has no step 99; it has 1 to 3");
  for (const char* several : {"all", "vedette,sentinel"})
    expect_one_sentence(vedette(report + " --policy " + several), 1, "one policy is simulated");
  EXPECT_EQ(vedette(report + " --step 3 --no-simulation").status, 0);
}

}  // namespace
}  // namespace vedette
