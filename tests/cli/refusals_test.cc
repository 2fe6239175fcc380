// Command lines that name nothing to do, or two things at once: one sentence, and nothing is done.
#include "cli/sentences.h"
#include "profiler/sqlite.h"

namespace vedette::refusals_test {
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

// Of every 1.x, with the statuses 0, 1 and 2 that the tests of each verb hold.
TEST(WhatStays, AreTheVerbsOf1_0) {
  for (const char* verb : {"ask", "check", "compare", "daemon", "doctor", "export", "fits", "import", "info", "jobs",
                           "pack", "plan", "races", "replay", "report", "reproduce", "set", "share", "top"})
    EXPECT_EQ(vedette(std::string(verb) + " --help").status, 0) << verb;
  EXPECT_EQ(vedette("info /nowhere").status, 1);
  EXPECT_EQ(vedette("info --nothing").status, 2);
}

TEST(AReport, RefusesStepsThatTheRecordingLacksAndSeveralPolicies) {
  const std::string report = "report --text " + told::record_run("steps.vedette", 3);
  expect_one_sentence(vedette(report + " --step 99"), 1, "--step: the recording has no step 99; it has 1 to 3");
  for (const char* several : {"all", "vedette,sentinel"})
    expect_one_sentence(vedette(report + " --policy " + several), 1, "one policy is simulated");
  EXPECT_EQ(vedette(report + " --step 3 --no-simulation").status, 0);
}

TEST(ALengthOfTime, IsOfThePolicyThatSearches) {
  const std::string plan = "plan " + toy("unet") + " --fast-memory 40% --time=";
  for (const char* time : {"0", "0s", "-5ms", "nan", "5", "5 ms", "2days", "1e9s", "soon"})
    expect_one_sentence(vedette(plan + "'" + time + "'"), 1,
                        std::string("vedette: --time ") + time + " is no length of time for planning; say 50ms or 2s");
  expect_one_sentence(vedette(plan + "50ms --policy g10"), 1, "vedette: --time is for the policy vedette");
  for (const char* time : {"1us", "50ms", "0.5s", "1min"}) EXPECT_EQ(vedette(plan + time).status, 0) << time;
}

TEST(APlanFile, IsNoPolicysPlan) {
  const std::string trace = toy("chain4"), plan = told::fresh_path("plan.json");
  ASSERT_EQ(vedette("plan " + trace + " -o " + plan).status, 0);
  for (const char* verb : {"check ", "replay "}) {
    expect_one_sentence(vedette(verb + trace + " " + plan + " --policy sentinel"), 2, "excludes");
    EXPECT_EQ(vedette(verb + trace + " " + plan).status, 0);
  }
}

// As a policy's plan does that reacts, and one that says nothing at all.
TEST(ReplayCommand, RefusesAPlanThatCheckRefuses) {
  const std::string plan = told::fresh_path("refused.json"),
                    there = " " + toy("unet") + " " + plan + " --fast-memory 40%";
  ASSERT_EQ(vedette("plan " + toy("unet") + " --fast-memory 40% --policy on-demand -o " + plan).status, 0);
  expect_one_sentence(vedette("replay" + there), 1, "vedette: the plan breaks a rule: ");
  EXPECT_EQ(vedette("replay" + there).output, vedette("check" + there).output);
  ASSERT_EQ(vedette("plan " + toy("unet") + " --fast-memory 40% -o " + plan).status, 0);
  EXPECT_EQ(vedette("replay" + there).status, 0);
  expect_one_sentence(vedette("replay " + toy("unet") + " " + plan + " --fast-memory 38%"), 1,
                      "vedette: the plan breaks a rule: ");
}

TEST(CheckCommand, SaysThatAPolicyMovesTensorsWhenSomethingHappens) {
  for (const char* policy : {"on-demand", "unified-memory", "g10+", "deepum+"})
    expect_one_sentence(
        vedette("check " + toy("unet") + " --fast-memory 40% --policy " + policy), 1,
        std::string(policy) + " moves tensors when something happens, so that its plan alone breaks a rule (");
  const std::string plan = told::fresh_path("alone.json");
  ASSERT_EQ(vedette("plan " + toy("unet") + " --fast-memory 40% --policy on-demand -o " + plan).status, 0);
  expect_one_sentence(vedette("check " + toy("unet") + " " + plan + " --fast-memory 40%"), 1,
                      "vedette: the plan breaks a rule: ");
}

TEST(AFile, OfAnotherKindIsCalledWhatItIs) {
  const std::string trace = toy("chain4"), plan = told::fresh_path("kind.json"),
                    machine = written("machine.json", R"({"format":"vedette-machine-1"})");
  ASSERT_EQ(vedette("plan " + trace + " -o " + plan).status, 0);
  for (const char* verb : {"plan ", "check ", "replay ", "compare ", "pack "}) {
    expect_one_sentence(vedette(verb + plan), 1, "is a vedette-plan-1; a vedette-trace-1 is wanted here");
    expect_one_sentence(vedette(verb + machine), 1, "is a vedette-machine-1; a vedette-trace-1 is wanted here");
  }
  expect_one_sentence(vedette("plan " + trace + " --machine " + plan), 1,
                      "is a vedette-plan-1; a vedette-machine-1 is wanted here");
  expect_one_sentence(vedette("replay " + trace + " " + machine), 1,
                      "is a vedette-machine-1; a vedette-plan-1 is wanted here");
  expect_one_sentence(vedette("replay " + trace + " --rows " + trace), 1,
                      "is a vedette-trace-1; a vedette-rows-1 is wanted here");
}

TEST(AFile, ThatCannotBeReadToItsEndGetsASentence) {
  expect_one_sentence(vedette("plan /proc/self/mem"), 1, "vedette: /proc/self/mem cannot be read: Input/output error");
}

// Whoever sends a recording writes its names.
TEST(ARecording, NamesNoLibraryThatIsLoaded) {
  const std::string recording = told::record_run("sent.vedette", 3), library = written("sent.so", "no library"),
                    report = "report --text " + recording;
  for (const std::string& policy : {library, std::string("./sent.so"), std::string("sent.so")}) {
    auto database = Database::open(recording, Database::Mode::create).value();
    Statement(database, "UPDATE meta SET value = ? WHERE key = 'policy'").run(policy);
    ASSERT_FALSE(database.failure());
    const told::Ran ran = vedette(report);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_THAT(ran.output, ::testing::HasSubstr("no policy '" + policy + "' is known here"));
  }
  expect_one_sentence(vedette(report + " --policy " + library), 1, library + " cannot be loaded: ");
}

TEST(ASize, MayBeOfTerabytes) {
  const std::string plan = "plan " + toy("chain4") + " --fast-memory ";
  EXPECT_EQ(vedette(plan + "1TiB").output, vedette(plan + "1024GiB").output);
  EXPECT_EQ(vedette(plan + "2TB").status, 0);
}

TEST(AListOfNumbers, TakesNoNameOfAFile) {
  const std::string recording = told::record_run("list.vedette", 4);
  const told::Ran named = vedette("export " + recording + " --to perfetto --steps 2,3");
  EXPECT_EQ(named.status, 0);
  EXPECT_EQ(vedette("export --to perfetto --steps 2,3 " + recording).output, named.output);
  EXPECT_EQ(vedette("export --to perfetto --steps 2 3 " + recording).output, named.output);
  EXPECT_EQ(vedette("export --steps 3 " + recording + " --to perfetto").status, 0);
  for (const char* steps : {"3", "2 3", "2,3"})
    EXPECT_EQ(vedette("report --no-simulation --step " + std::string(steps) + " " + recording + " --text").status, 0);
  EXPECT_EQ(vedette("compare --fast-memory 60%,80% " + toy("chain4") + " --policy vedette").status, 0);
}

TEST(ExportCommand, SaysWhatARangeOfStepsAndAnObjectAre) {
  const std::string to = "export " + told::record_run("range.vedette", 6) + " --to ";
  expect_one_sentence(vedette(to + "perfetto --steps 5 3"), 1, "--steps: the range 5,3 is reversed");
  for (const char* steps : {"x", "1,2,3", ",", "-1", "1,x"})
    expect_one_sentence(vedette(to + "perfetto --steps=" + steps), 1,
                        "is no step or range of steps; write 10, or 10,12");
  for (const char* object : {"0", "-1", "x", "1e400"})
    expect_one_sentence(vedette(to + "oracle-general -o /dev/null --object " + object), 2,
                        std::string("--object: '") + object + "' is no size; write a whole number from 1, or 64KiB");
  const auto requests = [&](const char* object) {
    return vedette(to + "oracle-general -o /dev/stdout --object " + object).output;
  };
  EXPECT_EQ(requests("64KiB"), requests("65536"));
}

}  // namespace
}  // namespace vedette::refusals_test
