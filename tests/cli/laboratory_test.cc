// vedette check, replay, compare and plan, as commands: what they print, what they refuse, in one sentence, with which
// status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "cli/sentences.h"
#include "share/decide.h"
#include "vedette/policy.h"

namespace vedette::laboratory_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Laboratory, ARecordingIsATraceToo) {
  const std::string recording = told::fresh_path("recorded.vedette");
  ASSERT_EQ(vedette("import " + toy("chain4") + " -o " + recording).status, 0);
  const std::string arguments = " --fast 60% --policies on-demand,vedette --json";
  const auto of_trace = nlohmann::json::parse(vedette("compare " + toy("chain4") + arguments).output);
  const auto of_recording = nlohmann::json::parse(vedette("compare " + recording + arguments).output);
  ASSERT_EQ(of_trace.size(), 2u);
  ASSERT_EQ(of_recording.size(), 2u);
  for (const std::size_t row : {0u, 1u}) {
    for (const char* key : {"policy", "fast_bytes", "step_ns", "ideal_ns", "bytes_in", "bytes_out", "error"})
      EXPECT_EQ(of_recording[row][key], of_trace[row][key]) << key;
  }
}

// A machine file's host memory is said beside its links, slows the step down, and no plan is under its bound.
TEST(Laboratory, AMachineSaysWhatItsHostsMemoryLeavesLinks) {
  const std::string file = told::fresh_path("host.json"), with = " --fast-memory 60% --machine " + file;
  const auto step_ns = [&](const std::string& host) {
    std::ofstream(file)
        << R"({"format": "vedette-machine-1", "tiers": [{"name": "gpu", "bytes": 1}, {"name": "host", "bytes": 1000000000}],
"links": [{"from": "host", "to": "gpu", "bytes_per_s": 56000000}, {"from": "gpu", "to": "host", "bytes_per_s": 56000000}],
"interference_percent": 0)"
        << host << "}";
    const auto rows =
        nlohmann::json::parse(vedette("compare " + toy("chain4") + with + " --policies vedette --json").output);
    EXPECT_GE(rows.at(0).at("step_ns"), rows.at(0).at("lower_bound_ns"));
    return rows.at(0).at("step_ns").get<std::int64_t>();
  };
  const std::int64_t free = step_ns(""),
                     ample = step_ns(R"(, "host_memory": {"tier": "host", "bytes_per_s": 112000000})");
  EXPECT_EQ(ample, free);
  EXPECT_THAT(vedette("replay " + toy("chain4") + with).output, HasSubstr("; together 0.112 GB/s of host)"));
  const std::int64_t busy =
      step_ns(R"(, "host_memory": {"tier": "host", "bytes_per_s": 107000000, "processor_bytes_per_s": 70000000})");
  EXPECT_GT(busy, free);
  EXPECT_THAT(vedette("plan " + toy("chain4") + with).output,
              HasSubstr("; together 0.037 GB/s of host beside the processor's 0.07)"));
}

std::string after_the_first_line(const std::string& text) {
  EXPECT_THAT(text, StartsWith("vedette: ")) << "of standard error";
  return text.substr(text.find('\n') + 1);
}

// Answers about a step that PyTorch recorded begin with what it did not tell; JSON stays JSON.
TEST(Laboratory, TracesOfPyTorchAreStepsToo) {
  const std::string files = std::string(VEDETTE_SOURCE_DIR) + "/tests/profiler/foreign/";
  const std::pair<const char*, const char*> all[] = {
      {"mlp.json.gz", "An execution trace tells neither times nor lives"},
      {"mlp.et.gz", "A Chakra trace tells neither times nor lives"},
      {"mlp.pickle", "A memory snapshot tells sizes and lives"}};
  for (const auto& [name, begin] : all) {
    SCOPED_TRACE(name);
    const std::string file = files + name, recording = told::fresh_path("pytorch.vedette");
    for (const char* verb :
         {"compare --policy vedette --fast-memory 90% ", "plan --fast-memory 90% ", "pack ", "fits "})
      EXPECT_THAT(vedette(verb + file).output, StartsWith(begin)) << verb;
    for (const char* verb : {"compare --policy vedette --fast-memory 90% ", "pack ", "fits "})
      EXPECT_FALSE(nlohmann::json::parse(after_the_first_line(vedette(verb + file + " --json").output)).empty())
          << verb;
    ASSERT_EQ(vedette("import " + file + " -o " + recording).status, 0);
    EXPECT_THAT(vedette("fits " + recording + " --card h100").output, StartsWith(begin));
    EXPECT_THAT(vedette("info " + recording).output, HasSubstr(std::string("assumed        ") + begin));
  }
}

TEST(Fits, SaysWhetherAStepFitsAndHowFastItIsWithLess) {
  const auto answer = nlohmann::json::parse(vedette("fits " + toy("unet") + " --machine h100-pcie5 --json").output);
  EXPECT_EQ(answer["fits"], true);
  ASSERT_GE(answer["rows"].size(), 3u);
  for (const auto& row : answer["rows"]) {
    EXPECT_GE(row["memory_bytes"], answer["least_bytes"]);
    EXPECT_LE(row["moving_alone"][0], row["bound"][0].get<double>() + 1e-9) << "no plan passes the bound";
    EXPECT_GE(row["with_recomputation"][0], row["moving_alone"][0]);
  }
  EXPECT_DOUBLE_EQ(answer["rows"][0]["moving_alone"][0], 1) << "of all memory";
  const auto on_card = nlohmann::json::parse(vedette("fits " + toy("unet") + " --card l40s --json").output);
  ASSERT_EQ(on_card["ideal_ns"].size(), 2u) << "a slow and a fast estimate";
  EXPECT_GT(on_card["ideal_ns"][0], on_card["ideal_ns"][1]);
  const std::string text = vedette("fits " + toy("unet") + " --machine h100-pcie5 --memory 40%").output;
  EXPECT_THAT(text, AllOf(HasSubstr("are the least that works"), HasSubstr("it runs under a guard"),
                          HasSubstr("no plan passes")));
  const std::string json = " --machine h100-pcie5 --json --memory ";
  EXPECT_FALSE(nlohmann::json::parse(vedette("fits " + toy("unet") + json + "40%").output)["fits"]);
  EXPECT_TRUE(nlohmann::json::parse(vedette("fits " + toy("unet") + json + "100%").output)["fits"]);
}

// Elsewhere the step takes so long: the same moves hide behind more time. A pool needs no less than what lives.
TEST(Fits, ScalesARecordedStepToTheTimeThatItIsToldAndCountsFragments) {
  const auto answer = [](const std::string& more) {
    return nlohmann::json::parse(
        vedette("fits " + toy("unet") + " --machine h100-pcie5 --memory 40% --json" + more).output);
  };
  const auto quick = answer(" --step 1ms"), slow = answer(" --step 1s");
  EXPECT_NEAR(quick["ideal_ns"][0].get<double>(), 1e6, 1e3);
  EXPECT_NEAR(slow["ideal_ns"][0].get<double>(), 1e9, 1e3);
  const auto of = [](const nlohmann::json& all) {
    for (const auto& row : all["rows"])
      if (std::abs(row["share_of_peak"].get<double>() - 0.4) < 1e-3) return row["moving_alone"][0].get<double>();
    return 0.0;
  };
  EXPECT_GT(of(slow), of(quick));
  EXPECT_GE(quick["with_fragments_bytes"], quick["peak_bytes"]);
  EXPECT_EQ(answer("")["rows"].size(), 5u) << "40 % is asked for and in the table, and stands there once";
  EXPECT_THAT(vedette("fits " + toy("unet") + " --machine h100-pcie5").output, HasSubstr("in a pool by best fit"));
}

// Sizes are lines through those of both batches: twice the bytes for twice the batch.
TEST(Fits, SaysUpToWhichBatch) {
  const std::string one = trace_with("", ""), other = written("twice.json", [&] {
                                                auto step = nlohmann::json::parse(one);
                                                for (auto& tensor : step["tensors"])
                                                  if (!tensor["persistent"].get<bool>())
                                                    tensor["bytes"] = tensor["bytes"].get<int>() * 2;
                                                return step.dump();
                                              }());
  const auto answer = nlohmann::json::parse(
      vedette("fits " + written("once.json", one) + " --also " + other + " --batch 8,16 --memory 1MiB --json").output);
  const std::uint64_t whole = answer["batch"]["whole"], op = answer["batch"]["operator"];
  EXPECT_GT(whole, 8u);
  EXPECT_LE(whole, op);
}

TEST(Fits, RefusesWhatItCannotAnswer) {
  const std::string trace = toy("chain4");
  expect_one_sentence(vedette("fits"), 2, "a recording, or --list, is required");
  expect_one_sentence(vedette("fits " + trace + " --card h10"), 1, "there is no card 'h10'");
  expect_one_sentence(vedette("fits " + trace + " --card h100 --machine gh200"), 1, "leave one out");
  expect_one_sentence(vedette("fits " + trace + " --memory 1"), 1, "of fast memory at least, and there are 1 bytes");
  expect_one_sentence(vedette("fits " + trace + " --host 1GiB"), 1, "--host is the host memory beside a --card");
  expect_one_sentence(vedette("fits " + told::record_run("least.vedette", 3) + " --memory 256KiB"), 1,
                      "takes 512.0 KiB (524288 bytes) of fast memory at least, and there are 256.0 KiB");
  expect_one_sentence(vedette("fits " + trace + " --disk fast"), 1, "is no speed; write 2GB/s or 500MB/s");
  expect_one_sentence(vedette("fits " + trace + " --batch 8,16"), 1, "--batch needs --also");
  expect_one_sentence(vedette("fits " + trace + " --also " + trace), 1, "--also needs --batch A,B");
  expect_one_sentence(vedette("fits " + trace + " --batch 8,16 --also " + toy("unet")), 1, "their sizes make no lines");
  EXPECT_THAT(vedette("fits --list").output, AllOf(HasSubstr("rtx4090"), HasSubstr("mi300x")));
}

TEST(Ask, AnswersEachQuestionAsATableAndAsJson) {
  const std::string ask = "ask " + told::record_run("ask.vedette", 5) + " ";
  for (const char* question : {"hottest", "coldest", "peak", "moved-most", "never-used", "stalls", "late", "pages 0"}) {
    SCOPED_TRACE(question);
    EXPECT_EQ(vedette(ask + question).status, 0);
    const auto rows = nlohmann::json::parse(vedette(ask + question + " --limit 1 --json").output);
    ASSERT_TRUE(rows.is_array());
    EXPECT_LE(rows.size(), 1u);
  }
  const auto all = nlohmann::json::parse(vedette(ask + "peak --limit 1000 --json").output);
  ASSERT_FALSE(all.empty());
  std::uint64_t bytes = 0, grouped = 0;
  for (const auto& row : all) bytes += row["bytes"].get<std::uint64_t>();
  for (const auto& row : nlohmann::json::parse(vedette(ask + "peak --group 'w=with w' --json").output))
    grouped += row["bytes"].get<std::uint64_t>();
  EXPECT_EQ(grouped, bytes) << "each tensor is in one group";
  const auto steps = nlohmann::json::parse(vedette(ask + "--sql 'SELECT count(*) n FROM steps' --json").output);
  EXPECT_EQ(steps[0]["n"], 5);
}

TEST(Ask, RefusesWhatIsNoQuestionAndWritesNothing) {
  const std::string recording = told::record_run("asked.vedette", 5), ask = "ask " + recording + " ";
  expect_one_sentence(vedette(ask), 2, "a question, or --sql, is required");
  expect_one_sentence(vedette(ask + "hotest"), 1, "there is no question 'hotest' (did you mean 'hottest'?)");
  expect_one_sentence(vedette(ask + "pages"), 1, "pages is of one tensor: vedette ask RUN pages NAME");
  expect_one_sentence(vedette(ask + "pages nothing"), 1, "there is no tensor 'nothing'");
  expect_one_sentence(vedette(ask + "stalls --group a=b"), 1, "--group sums rows of tensors");
  expect_one_sentence(vedette(ask + "peak --group a"), 1, "--group a is no REGEX=NAME; write 'exp_avg=moments'");
  expect_one_sentence(vedette(ask + "peak --group '(=b'"), 1, "'(' is no regular expression");
  expect_one_sentence(vedette(ask + "peak --sql 'SELECT 1'"), 1, "leave 'peak' out");
  expect_one_sentence(vedette(ask + "--sql 'DELETE FROM steps'"), 1, "--sql: ");
  expect_one_sentence(vedette("ask " + toy("chain4") + " peak"), 1, "is not a recording");
  EXPECT_EQ(nlohmann::json::parse(vedette(ask + "--sql 'SELECT count(*) n FROM steps' --json").output)[0]["n"], 5);
}

// As a job of continuous integration has it: a status, and all that was not kept in one sentence.
TEST(CheckCommand, JudgesARecordedRun) {
  const std::string check = "check " + told::record_run("judged.vedette", 5) + " ";
  EXPECT_EQ(vedette(check + "--peak 100GiB --stall 100%").status, 0);
  expect_one_sentence(vedette(check + "--peak 1KiB"), 1, "its peak is ");
  expect_one_sentence(vedette(check + "--stall 5"), 1, "--stall 5 is no share of a step; write 5%");
  expect_one_sentence(vedette(check + "--peak much"), 1, "'much' is no size");
  expect_one_sentence(vedette("check " + toy("chain4") + " --planned"), 1, "is not a recording");
}

struct BadTrace {
  const char *from, *to, *says;
};
class ABadTrace : public ::testing::TestWithParam<BadTrace> {};

TEST_P(ABadTrace, GetsOneSentenceFromEveryVerb) {
  const std::string path = written("bad.json", trace_with(GetParam().from, GetParam().to));
  for (const char* verb : {"check", "replay", "compare", "plan", "pack"}) {
    SCOPED_TRACE(verb);
    const told::Ran ran = vedette(std::string(verb) + " '" + path + "'");
    expect_one_sentence(ran, 1, GetParam().says);
    EXPECT_THAT(ran.output, HasSubstr(path));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, ABadTrace,
    ::testing::Values(BadTrace{"\"writes\":[1]", "\"writes\":[]", "op 1: reads tensor 1 before any write"},
                      BadTrace{"\"reads\":[0,1]", "\"reads\":[0,2]", "op 1: reads has an id out of range"},
                      BadTrace{"\"ns\":6", "\"ns\":-6", "op 1: ns is not an integer between 1 and"},
                      BadTrace{"\"ns\":6", "\"ns\":NaN", "is not JSON: line 4, column "},
                      BadTrace{"\"bytes\":16", "\"bytes\":1e400", "is not JSON"}, BadTrace{"]}", "]", "is not JSON"},
                      BadTrace{"vedette-trace-1", "vedette-trace-9",
                               "is a vedette-trace-9; a vedette-trace-1 is wanted here"}));

TEST(ABadTrace, OfMoreThanAMillionOpsGetsOneSentence) {
  std::string ops = "\"ops\":[1";
  for (int i = 0; i < 1'000'000; ++i) ops += ",1";
  const std::string path = written("many.json", trace_with("\"ops\":[", ops + ","));
  expect_one_sentence(vedette("replay '" + path + "'"), 1,
                      "ops: has 1000003 entries, more than the 1000000 that a step may have");
}

TEST(TheLaboratory, SaysInOneSentenceWhatCannotBeRead) {
  const std::string trace = toy("chain4"), empty = written("empty.json", "");
  for (const char* verb : {"check", "replay", "compare", "plan"}) {
    SCOPED_TRACE(verb);
    const std::string on = std::string(verb) + " ";
    expect_one_sentence(vedette(on + "/nowhere.json"), 1, "/nowhere.json cannot be opened; is the path right?");
    expect_one_sentence(vedette(on + "/"), 1, "/ cannot be read; it is a directory");
    expect_one_sentence(vedette(on + "'" + empty + "'"), 1, "is empty");
    expect_one_sentence(vedette(on + trace + " --machine a100"), 1,
                        "there is no machine 'a100' (did you mean 'a100-g10'?), neither a preset (a100-g10, "
                        "h200-pcie5, h100-pcie5, optane-sentinel, v100-pcie3, a100-pcie4, gh200, cxl-x8, optane-2019, "
                        "cxl-2025, hbm-flat, "
                        "far-socket, rtx4090-pcie4, rtx5090-pcie5, gb200, this-machine) nor a file");
    expect_one_sentence(vedette(on + trace + " --machine " + trace), 1,
                        "the file is a vedette-trace-1; a vedette-machine-1 is wanted here");
    for (const char* size : {"0%", "-5%", "nan", "much", "1e30%", "0", "inf", "5 parsecs"})
      expect_one_sentence(vedette(on + trace + " '--fast=" + size + "'"), 1, std::string("'") + size + "' is no size");
    // a variable of a script that was empty
    expect_one_sentence(vedette(on + trace + " --fast ''"), 1, "'' is no size");
  }
}

TEST(TheLaboratory, AnswersACommandLineItCannotUnderstandWithTwo) {
  expect_one_sentence(vedette(""), 2, "name a verb; there are ask check compare");
  expect_one_sentence(vedette("--loud"), 2, "there is no option '--loud' before a verb; there are ask check compare");
  expect_one_sentence(vedette("compute x"), 2,
                      "there is no verb 'compute' (did you mean 'compare'?); there are ask check compare");
  expect_one_sentence(vedette("check"), 2, "trace is required");
  expect_one_sentence(vedette("replay x --steps 0"), 2, "--steps");
  expect_one_sentence(vedette("compare x --noise many"), 2, "--noise");
  expect_one_sentence(vedette("plan x --explian y"), 2, "--explian");
  expect_one_sentence(vedette("plan"), 2, "vedette plan: trace, or --list, is required");
  for (const char* verb : {"check", "replay", "compare", "plan"})
    expect_one_sentence(vedette(std::string(verb) + " x --seed -1"), 2, "--seed");
  expect_one_sentence(vedette("compaer x"), 2,
                      "there is no verb 'compaer' (did you mean 'compare'?); there are ask check");
  expect_one_sentence(vedette("plan x --explian y"), 2, "there is no option '--explian' (did you mean '--explain'?)");
  expect_one_sentence(vedette("info x y"), 2, "it takes no further word, and 'y' is one");
  expect_one_sentence(vedette("help plna"), 2, "there is no verb 'plna' (did you mean 'plan'?); there are ask check");
  EXPECT_EQ(vedette("help").output, vedette("--help").output);
  EXPECT_EQ(vedette("help plan").output, vedette("plan --help").output);
  EXPECT_EQ(vedette("--help").status, 0);
  EXPECT_EQ(vedette("compare --help").status, 0);
}

TEST(TheLaboratory, KnowsThePoliciesThatDocumentationNames) {
  const std::regex named("--polic(?:y|ies) ([A-Za-z0-9+,./_-]+)");
  int checked = 0;
  for (const auto& page : std::filesystem::directory_iterator(VEDETTE_SOURCE_DIR "/docs")) {
    if (page.path().extension() != ".md") continue;
    const std::string text = text_of(page.path().string());
    for (std::sregex_iterator found(text.begin(), text.end(), named), end; found != end; ++found) {
      std::istringstream names((*found)[1].str());
      for (std::string name; std::getline(names, name, ',');) {
        ++checked;
        const bool known = name == "all" || name.find('/') != std::string::npos || make_policy(name, 1) != nullptr ||
                           share::policy_named(name) != nullptr;
        EXPECT_TRUE(known) << page.path() << " names the policy " << name;
      }
    }
  }
  EXPECT_GT(checked, 5);
}

TEST(TheLaboratory, KnowsItsPolicies) {
  const std::string trace = toy("chain4");
  for (const char* verb : {"check", "replay", "plan"}) {
    expect_one_sentence(vedette(std::string(verb) + " " + trace + " --policy nobody"), 1,
                        "there is no policy 'nobody'; there are on-demand");
    expect_one_sentence(vedette(std::string(verb) + " " + trace + " --policy belady,vedette"), 1,
                        "one policy makes one plan");
  }
  expect_one_sentence(vedette("compare " + trace + " --policies vedette,nobody"), 1, "there is no policy 'nobody'");
  expect_one_sentence(vedette("plan " + trace + " --policy sentinle"), 1,
                      "there is no policy 'sentinle' (did you mean 'sentinel'?); there are on-demand");
  expect_one_sentence(vedette("compare " + trace + " --policies ,"), 1, "no policy is named");
  const told::Ran list = vedette("plan --list");
  EXPECT_EQ(list.status, 0);
  for (const PolicyEntry& entry : policies()) EXPECT_THAT(list.output, HasSubstr(std::string(entry.name) + " "));
}

// One word for one thing, and earlier words still understood, though no help shows them.
TEST(TheLaboratory, HasOneWordForAFlagOfSeveralVerbs) {
  const std::string trace = toy("chain4");
  EXPECT_EQ(vedette("compare " + trace + " --fast-memory 60% --policy vedette --json").status, 0);
  for (const char* verb : {"check", "replay", "plan"})
    EXPECT_EQ(vedette(std::string(verb) + " " + trace + " --fast-memory 60%").output,
              vedette(std::string(verb) + " " + trace + " --fast 60%").output);
  for (const char* verb : {"check", "replay", "plan", "compare"})
    EXPECT_THAT(vedette(std::string("help ") + verb).output,
                AllOf(HasSubstr("--fast-memory"), HasSubstr("--policy "), Not(HasSubstr("--fast ")),
                      Not(HasSubstr("--policies"))));
  for (const char* verb : {"report", "plan", "compare", "doctor", "pack", "import", "export"})
    EXPECT_THAT(vedette(std::string("help ") + verb).output, HasSubstr("-o,--output"));
}

TEST(TheLaboratory, SaysHowMuchTheLargestOpNeeds) {
  for (const char* verb : {"check", "replay", "plan"})
    expect_one_sentence(
        vedette(std::string(verb) + " " + toy("chain4") + " --fast 1000"), 1,
        "needs 576.0 KiB (589824 bytes) of fast memory at once, and there are 1000 bytes; give it that many");
  const told::Ran compared = vedette("compare " + toy("chain4") + " --fast 1000 --policies vedette");
  EXPECT_EQ(compared.status, 1) << "nothing ran";
  EXPECT_THAT(compared.output, HasSubstr("infeasible: the largest op needs 576.0 KiB (589824 bytes)"));
}

TEST(CheckCommand, AcceptsWhatPoliciesPlanAndNamesTheRuleThatAPlanBreaks) {
  const std::string trace = toy("chain4"), plan = told::fresh_path("plan.json");
  EXPECT_EQ(
      vedette("check " + trace + " --fast 60%").output,
      "machine: a100-g10 (gpu 1.0 MiB, host 128.0 GiB, ssd 16.0 TiB; host to gpu 15.8 GB/s, gpu to host 15.8 GB/s, "
      "ssd to gpu 3.2 GB/s, gpu to ssd 3.2 GB/s)\nvedette: the plan keeps every rule on chain4\n");
  ASSERT_EQ(vedette("plan " + trace + " --fast 60% -o '" + plan + "'").status, 0);
  EXPECT_EQ(vedette("check " + trace + " '" + plan + "' --fast 60%").status, 0);
  expect_one_sentence(vedette("check " + trace + " '" + plan + "' --fast 45%"), 1, "the plan breaks a rule: ");
  expect_one_sentence(vedette("check " + toy("unet") + " '" + plan + "'"), 1, "it was made for another trace");
}

TEST(ReplayCommand, RunsAPlanFromAFileAsThePolicyThatMadeIt) {
  const std::string trace = toy("mlp_adam"), plan = told::fresh_path("plan.json");
  // the second: what a plan says beside its moves counts, too
  for (const char* policy : {"sentinel", "unified-memory", "belady"}) {
    ASSERT_EQ(vedette("plan " + trace + " --fast 60% --policy " + policy + " -o '" + plan + "'").status, 0);
    const told::Ran own = vedette("replay " + trace + " --fast 60% --policy " + policy);
    EXPECT_THAT(own.output, AllOf(HasSubstr("of ideal"), HasSubstr("no plan under"), HasSubstr("fast memory"),
                                  HasSubstr("link           host to gpu: busy")));
    if (policy != std::string("unified-memory")) continue;
    EXPECT_THAT(text_of(plan), AllOf(HasSubstr("\"after_life\": \"kept\""), HasSubstr("\"fallback\": \"least_recent\""),
                                     Not(HasSubstr("\"block\": 0"))));
  }
  const told::Ran own = vedette("replay " + trace + " --fast 60% --policy belady");
  EXPECT_EQ(vedette("replay " + trace + " '" + plan + "' --fast 60%").output, own.output);
}

// The second line of a replay: the step's time and percent.
std::string step_of(const told::Ran& ran) {
  const std::size_t begin = ran.output.find('\n') + 1;
  return ran.output.substr(begin, ran.output.find('\n', begin) - begin);
}

TEST(PlanCommand, WritesThePlanThatCompareMeasures) {
  const std::string first = told::fresh_path("first.json"), settled = told::fresh_path("settled.json");
  int differ = 0;
  for (const char* trace : {"mlp_adam", "unet", "resnet_block"}) {
    for (const char* policy : {"sentinel", "capuchin", "vedette"}) {
      SCOPED_TRACE(std::string(trace) + " " + policy);
      const std::string on = toy(trace), how = " --fast 50%";
      const told::Ran planned =
          vedette("plan " + on + how + " --policy " + policy + " -o '" + first + "' --settled '" + settled + "'");
      if (planned.status != 0) continue;  // it needs more memory
      const std::string measured = step_of(vedette("replay " + on + how + " --policy " + policy));
      EXPECT_EQ(step_of(vedette("replay " + on + " '" + settled + "'" + how)), measured);
      EXPECT_THAT(planned.output, HasSubstr("\nsettled: "));
      differ += step_of(vedette("replay " + on + " '" + first + "'" + how)) != measured;
    }
  }
  EXPECT_GT(differ, 0) << "no policy here wants a second plan";
  const told::Ran reacts =
      vedette("plan " + toy("unet") + " --fast 40% --policy on-demand --settled '" + settled + "'");
  EXPECT_THAT(reacts.output, HasSubstr("moves of that step were asked for when something happened"));
  expect_one_sentence(vedette("plan " + toy("unet") + " --fast 40% --settled /nowhere/plan.json"), 1,
                      "/nowhere/plan.json cannot be written");
}

TEST(ReplayCommand, RefusesAPlanFileThatIsNone) {
  const std::string trace = toy("chain4"), plan = told::fresh_path("plan.json");
  ASSERT_EQ(vedette("plan " + trace + " --fast 60% -o '" + plan + "'").status, 0);
  const std::string good = text_of(plan);
  int made = 0;
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return written(std::string("broken").append(std::to_string(made++)), text.replace(at, from.size(), to));
  };
  const std::pair<std::string, std::string> broken[] = {
      {with("vedette-plan-1", "vedette-plan-7"), "the plan is a vedette-plan-7; a vedette-plan-1 is wanted here"},
      {with("\"verb\":\"fetch\"", "\"verb\":\"carry\""), "verb is \"carry\", which is none of the known words"},
      {with("\"issue\":", "\"issue\":-"), "which is no whole number in its range"},
      {with("\"issue\":", "\"issue\":0.5e"), "issue is"},
      {with("\"tensor\":", "\"tensro\":"), "lacks the key 'tensor'"},
      {with("\"moves\": [", "\"moves\": [7,"), "has something else where an object should be"},
      {with("\"home\": [", "\"home\": [0,"), "it was made for another trace"},
      {with("\"block\": 0", "\"block\": 5"), "has blocks of 5 bytes; they are of 4096 at least"},
      {with("\"moves\"", "\"movs\""), "has the unknown key 'movs'"},
      {with("\"due\"", "\"note\":1,\"due\""), "has the unknown key 'note'"},
      {written("homes.json", R"({"format":"vedette-plan-1","home":[]})"), "lacks the key 'moves'"},
      {with("{", ""), "is not JSON"},
      {trace, "the plan is a vedette-trace-1; a vedette-plan-1 is wanted here"}};
  for (const auto& [file, says] : broken)
    expect_one_sentence(vedette("replay " + trace + " '" + file + "' --fast 60%"), 1, says);
  expect_one_sentence(vedette("replay " + trace + " '" + with("\"tensor\":", "\"tensor\":99") + "' --fast 60%"), 1, "");
}

TEST(ReplayCommand, RunsStepsInARowWhereTheirRowsAreGiven) {
  const std::string trace = written("two.json", trace_with("\"x\",\"bytes\":16", "\"x\",\"bytes\":32"));
  const auto rows = [&](const std::string& second) {
    return written("rows.json",
                   R"({"format":"vedette-rows-1","always_near":0,"held_bytes":64,"chunk_bytes":1048576,"chunks":4,
"steps":[[{"op":0,"chunks":[[0,2]]}],[{"op":0,"chunks":[[)" +
                       second + "]]}]]}");
  };
  const std::string command = "replay " + trace + " --fast 2200000 --steps 5 --rows '";
  const told::Ran same = vedette(command + rows("0,2") + "'"), other = vedette(command + rows("2,4") + "'");
  EXPECT_THAT(same.output, AllOf(HasSubstr("steps          median 0.000 ms, 0.000 to 0.000 (quartiles of 4)"),
                                 HasSubstr("moved          0 B in, 0 B out")));
  EXPECT_THAT(other.output,
              AllOf(Not(HasSubstr("median 0.000 ms")), HasSubstr("moved          2.0 MiB in, 2.0 MiB out")));
  expect_one_sentence(vedette(command + rows("4,5") + "'"), 1,
                      "rows: step 1, row 0 has a range of chunks that is empty or beyond the last");
  expect_one_sentence(vedette("replay " + trace + " " + trace + " --rows " + trace), 2, "excludes");
}

TEST(ReplayCommand, DrawsTheStep) {
  const std::string drawing = told::fresh_path("step.svg");
  ASSERT_EQ(vedette("replay " + toy("chain4") + " --fast 60% --policy on-demand --timeline '" + drawing + "'").status,
            0);
  EXPECT_THAT(text_of(drawing), AllOf(StartsWith("<svg xmlns"), HasSubstr("chain4, on-demand"),
                                      HasSubstr("host to gpu"), HasSubstr("#e45756")));
  expect_one_sentence(vedette("replay " + toy("chain4") + " --timeline /nowhere/step.svg"), 1,
                      "/nowhere/step.svg cannot be written");
}

TEST(PlanCommand, SaysInSentencesWhyATensorMoves) {
  const told::Ran story = vedette("plan " + toy("chain4") + " --fast 60% --policy belady --explain x1");
  EXPECT_EQ(story.status, 0);
  EXPECT_THAT(story.output,
              AllOf(HasSubstr("GB/s)\nTensor 5 'x1' (256.0 KiB) is born at op 0 'matmul' and last used at op "),
                    HasSubstr("leaves gpu for host, because nobody uses it before op"),
                    HasSubstr("is fetched from host, because")));
  EXPECT_EQ(vedette("plan " + toy("chain4") + " --fast 60% --policy belady --explain 5").output, story.output);
  const std::string plan = written("explained.json", "");
  EXPECT_EQ(vedette("plan " + toy("chain4") + " --fast 60% --policy belady --explain 5 -o " + plan).output,
            story.output);
  EXPECT_GT(std::filesystem::file_size(plan), 0u) << "the plan was explained, and not written";
  EXPECT_THAT(vedette("plan " + toy("chain4") + " --explain x1").output,
              HasSubstr("It never moves: all that lives at once"));
  expect_one_sentence(vedette("plan " + toy("chain4") + " --explain x99"), 1,
                      "the trace has no tensor 'x99', by name or number");
  expect_one_sentence(vedette("plan " + toy("chain4") + " --explain 18"), 1,
                      "the trace has no tensor '18', by name or number; it has 18: 0 'x0', 1 'w1', 2");
}

TEST(PlanCommand, TellsTheNextStepFromThisOne) {
  const told::Ran story = vedette("plan " + toy("mlp_adam") + " --fast 60% --policy belady --explain x0");
  EXPECT_EQ(story.status, 0);
  EXPECT_THAT(story.output, HasSubstr(" of the next step"));
}

TEST(CompareCommand, PrintsARowAPolicyAndSize) {
  const told::Ran ran = vedette("compare " + toy("chain4") + " --fast 60%,200% --policies vedette,belady --json");
  ASSERT_EQ(ran.status, 0) << ran.output;
  const auto rows = nlohmann::ordered_json::parse(ran.output);
  ASSERT_EQ(rows.size(), 4u);
  std::vector<std::string> keys;
  for (const auto& item : rows[0].items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre("trace", "fast_bytes", "fast_fraction", "policy", "step_ns", "ideal_ns",
                                "percent_of_ideal", "lower_bound_ns", "bounded", "stall_ns", "bytes_in", "bytes_out",
                                "recompute_ns", "peak_bytes", "plan_ns", "error"));
  EXPECT_EQ(rows[3]["policy"], "belady");
  EXPECT_EQ(rows[3]["percent_of_ideal"], 100.0);
  EXPECT_EQ(rows[3]["bytes_in"], 0);
  EXPECT_LE(rows[0]["peak_bytes"], rows[0]["fast_bytes"]);
  EXPECT_GE(rows[0]["step_ns"], rows[0]["lower_bound_ns"]);
  EXPECT_EQ(rows[0]["bounded"], true);
  EXPECT_TRUE(rows[0]["error"].is_null());
}

TEST(CompareCommand, MarksRowsOfADriverWithOtherRules) {
  const std::string page = told::fresh_path("paged.html"),
                    arguments = toy("chain4") + " --fast 60% --policies deepum+,vedette";
  const told::Ran table = vedette("compare " + arguments + " -o '" + page + "'");
  EXPECT_THAT(table.output, AllOf(HasSubstr("  deepum+ ~ "), HasSubstr("\n  vedette  "),
                                  HasSubstr("\n~ paged by a driver with rules of its own")));
  EXPECT_THAT(text_of(page), AllOf(HasSubstr("<td>deepum+ ~</td>"), HasSubstr("<p>~ paged by a driver")));
  const auto rows = nlohmann::json::parse(vedette("compare " + arguments + " --json").output);
  EXPECT_EQ(rows[0]["bounded"], false);
  EXPECT_EQ(rows[1]["bounded"], true);
  EXPECT_THAT(vedette("compare " + toy("chain4") + " --fast 60% --policies vedette").output, Not(HasSubstr("~")));
  EXPECT_THAT(vedette("replay " + toy("chain4") + " --fast 60% --policy deepum+").output,
              HasSubstr(" ms by other rules; this step is paged by a driver"));
}

TEST(CompareCommand, SaysInJsonWhatDidNotRun) {
  const told::Ran ran = vedette("compare " + toy("chain4") + " --fast 1000,60% --policies vedette --json");
  ASSERT_EQ(ran.status, 0) << ran.output;
  const auto row = nlohmann::json::parse(ran.output).at(0);
  EXPECT_THAT(row["error"].get<std::string>(), StartsWith("infeasible: "));
  EXPECT_TRUE(row["step_ns"].is_null());
  const told::Ran tight = vedette("compare " + toy("chain4") + " --fast 60% --policies dtr");
  EXPECT_THAT(tight.output, AllOf(HasSubstr("infeasible: what cannot be recomputed"), Not(HasSubstr("dtr: "))));
  const told::Ran alone = vedette("plan " + toy("chain4") + " --fast 60% --policy dtr");  // no row names it here
  EXPECT_EQ(alone.status, 1);
  EXPECT_THAT(alone.output, StartsWith("vedette: dtr: what cannot be recomputed"));
}

TEST(CompareCommand, EndsWithAStatusWhereNothingRan) {
  const told::Ran ran = vedette("compare " + toy("chain4") + " --fast 1000 --policies on-demand,vedette");
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.output,
              HasSubstr("vedette: 2 of 2 rows failed; the first: on-demand on chain4 with 1000 B: infeasible"));
  EXPECT_EQ(vedette("compare " + toy("chain4") + " --fast 60% --policies dtr,vedette").status, 0)
      << "that one policy needs more is an answer";
}

TEST(CompareCommand, SaysWhereThereIsNothingToChoose) {
  const std::string alike = "all policies that run here are within 1 % of each other",
                    page = told::fresh_path("a.html");
  const told::Ran plenty =
      vedette("compare " + toy("chain4") + " --fast 100% --policies on-demand,lms,vedette -o '" + page + "'");
  EXPECT_THAT(plenty.output, AllOf(StartsWith("machine: a100-g10 (gpu 40.0 GiB, "), HasSubstr(alike)));
  EXPECT_THAT(text_of(page), AllOf(HasSubstr("one line stands for all"), HasSubstr(">all policies</text>"),
                                   Not(HasSubstr(">lms</text>")), HasSubstr("<td>lms</td>")));
  const told::Ran tight =
      vedette("compare " + toy("chain4") + " --fast 60%,100% --policies on-demand,lms,vedette -o '" + page + "'");
  EXPECT_EQ(tight.output.find(alike), tight.output.rfind(alike)) << "at the larger size alone";
  EXPECT_THAT(text_of(page), AllOf(Not(HasSubstr("one line stands for all")), HasSubstr(">lms</text>")));
}

// What a recording ran on is known, and the default; a trace does not say.
TEST(CompareCommand, TakesARecordingsOwnMachine) {
  const std::string run = told::record_run("own.vedette", 4);
  for (const char* verb : {"compare", "plan", "check", "replay"}) {
    const told::Ran ran = vedette(std::string(verb) + " '" + run + "'" +
                                  (verb == std::string("compare") ? " --policies on-demand,vedette" : ""));
    EXPECT_THAT(ran.output, StartsWith("machine: the recording's own (")) << verb;
    EXPECT_THAT(vedette(std::string(verb) + " '" + run + "' --machine a100-g10").output,
                StartsWith("machine: a100-g10 (gpu "))
        << verb;
  }
}

TEST(CompareCommand, SaysOnThePageWhatItWasMadeWith) {
  const std::string page = told::fresh_path("made.html");
  const std::string arguments =
      "compare " + toy("chain4") + " --fast 60% --policies on-demand,vedette --seed 7 -o " + page;
  ASSERT_EQ(vedette(arguments).status, 0);
  EXPECT_THAT(text_of(page),
              AllOf(HasSubstr("<dt>vedette<dd>" VEDETTE_VERSION), HasSubstr("<dt>machine<dd>a100-g10: gpu 40.0 GiB"),
                    HasSubstr("<dt>seed<dd>7"), HasSubstr(arguments), HasSubstr("prefers-color-scheme:dark"),
                    HasSubstr("recompute")));
}

TEST(CompareCommand, WritesAPageThatFitsAPhoneAndADesk) {
  if (std::string_view(CHROMIUM).empty() || std::string_view(PYTHON3).empty())
    GTEST_SKIP() << "no Chromium or no python3 was found when this was configured";
  Trace slow = parse_trace(text_of(TOY_TRACES "/unet.json")).value();
  for (Op& op : slow.ops) op.time = {op.time.value * 3000};  // labels of five figures
  const std::string trace = written("slow.json", format_trace(slow)), page = told::fresh_path("wide.html");
  ASSERT_EQ(
      vedette("compare " + trace + " --fast 40%,60%,80% --policies on-demand,lms,vedette -o '" + page + "'").status, 0);
  std::istringstream lines(
      told::run("timeout 400 " PYTHON3 " '" BROWSER "' fits '" CHROMIUM "' '" + page + "' 420 1280").output);
  for (const int width : {420, 1280}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << width;
    const auto found = nlohmann::json::parse(line);
    EXPECT_LE(found["width"], width);
    EXPECT_EQ(found["cut"], nlohmann::json::array());
    EXPECT_EQ(found["overlap"], nlohmann::json::array());
  }
}

TEST(CompareCommand, WritesAPageWithCharts) {
  const std::string page = told::fresh_path("table.html");
  ASSERT_EQ(vedette("compare " + toy("chain4") + " " + toy("unet") +
                    " --fast 60%,80% --policies on-demand,vedette,belady -o '" + page + "'")
                .status,
            0);
  const std::string html = text_of(page);
  EXPECT_THAT(html, AllOf(StartsWith("<!doctype html>"), HasSubstr("<h2>chain4</h2>"), HasSubstr("<h2>unet</h2>"),
                          HasSubstr("One step under vedette and on-demand"), HasSubstr("lower bound"),
                          Not(HasSubstr("<script")), Not(HasSubstr("http://localhost"))));
  EXPECT_THAT(html, AllOf(HasSubstr("<td>belady (fewest bytes)</td>"), Not(HasSubstr("partial"))));
  ASSERT_EQ(vedette("compare " + toy("chain4") + " --fast 1000,80% --policies vedette,autotm -o '" + page + "'").status,
            0);
  EXPECT_THAT(
      text_of(page),
      AllOf(HasSubstr("<td>all 2</td><td colspan=\"9\" class=\"why\">infeasible: the largest op needs"),
            HasSubstr("<td>autotm *</td>"), HasSubstr("<li>autotm: op times for each placement and algorithm</li>")));
  ASSERT_EQ(vedette("compare " + toy("chain4") +
                    " --fast 60% --policies on-demand,vedette,belady --timeline belady,on-demand -o '" + page + "'")
                .status,
            0);
  EXPECT_THAT(text_of(page), HasSubstr("One step under belady and on-demand"));
  expect_one_sentence(vedette("compare " + toy("chain4") + " --policies vedette --timeline vedette,lms"), 1,
                      "--timeline draws two of the policies that are compared");
  expect_one_sentence(vedette("compare " + toy("chain4") + " --policies vedette -o /nowhere/table.html"), 1,
                      "/nowhere/table.html cannot be written");
}

TEST(WriteAPolicy, TheExampleRunsBesideTheOthers) {
  const told::Ran ran = told::run(std::string(WRITE_A_POLICY) + " " + toy("unet"));
  EXPECT_EQ(ran.status, 0);
  EXPECT_THAT(ran.output, AllOf(StartsWith("anybody "), HasSubstr("\non-demand "), HasSubstr("\nvedette ")));
  for (const char* const words : {"", " --help"}) {
    const told::Ran usage = told::run(std::string(WRITE_A_POLICY) + words);
    EXPECT_EQ(usage.status, *words == '\0' ? 1 : 0);
    EXPECT_EQ(usage.output, "usage: write_a_policy TRACE.json (vedette-trace-1)\n");
  }
  for (const char* const no_trace : {"/nowhere", "/"})
    EXPECT_EQ(told::run(std::string(WRITE_A_POLICY) + " " + no_trace).status, 1) << no_trace;
}

}  // namespace
}  // namespace vedette::laboratory_test
