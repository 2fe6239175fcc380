// A policy in a shared library: the example of docs/own-policy.md is compiled and run, and libraries that do not fit
// are refused in one sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command.h"
#include "support/traces.h"

namespace vedette::own_policy_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OwnPolicies : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // A library of that source; its path.
  std::string built(const std::string& name, const std::string& source) const {
    const fs::path file = folder_ / (name + ".cc"), library = folder_ / (name + ".so");
    std::ofstream(file) << source;
    const auto made =
        testing::run(CXX_COMPILER " -std=c++20 -Wall -Wextra -fPIC -shared -I " VEDETTE_SOURCE_DIR "/include '" +
                     file.string() + "' -o '" + library.string() + "' 2>&1");
    EXPECT_EQ(made.status, 0) << made.text;
    EXPECT_EQ(made.text, "");  // no warning
    return library.string();
  }
  static testing::Answer compare(const std::string& words) {
    return testing::run(VEDETTE_CLI " compare " TOY_TRACES "/chain4.json --fast-memory 60% --policy " + words +
                        " 2>&1");
  }
  static std::string quoted(const std::string& path) { return std::string("'").append(path).append("'"); }
  static std::string example() {
    const std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/own-policy.md");
    const std::size_t begin = page.find("```cpp\n") + 7;
    return page.substr(begin, page.find("```", begin) - begin);
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("own_policy" + std::to_string(::getpid()));
};

TEST_F(OwnPolicies, TheExampleOfTheDocsRunsBesideTheOthers) {
  const std::string library = built("mine", example());
  const auto ran = compare(quoted(library) + ",on-demand --json");
  ASSERT_EQ(ran.status, 0) << ran.text;
  const auto rows = nlohmann::json::parse(ran.text);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_EQ(rows[0]["policy"], "largest-first");
  EXPECT_GT(rows[0]["percent_of_ideal"].get<double>(), 0);
  EXPECT_GT(rows[0]["bytes_out"].get<std::uint64_t>(), 0);
  const auto replayed =
      testing::run(VEDETTE_CLI " replay " TOY_TRACES "/chain4.json --fast-memory 60% --policy '" + library + "' 2>&1");
  EXPECT_EQ(replayed.status, 0) << replayed.text;
}

// The other rows are there, and the status says that they are not all.
TEST_F(OwnPolicies, OneWhosePlanIsWrongFailsItsRowAndTheCommand) {
  std::string source = example();
  const std::string home = "tensor.persistent ? slowest_ : TierIndex{0}";
  ASSERT_NE(source.find(home), std::string::npos);
  source.replace(source.find(home), home.size(), "tensor.persistent ? TierIndex{7} : TierIndex{8}");
  const std::string library = built("wrong", source), page = (folder_ / "table.txt").string();
  const auto ran = testing::run(VEDETTE_CLI " compare " TOY_TRACES "/chain4.json --fast-memory 60% --json --policy '" +
                                library + "',on-demand 2>'" + page + "'");
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(testing::read_text(page), HasSubstr("vedette: 1 of 2 rows failed; the first: largest-first on chain4"));
  const auto rows = nlohmann::json::parse(ran.text);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_TRUE(rows[0]["error"].is_string());
  EXPECT_TRUE(rows[1]["error"].is_null());
  EXPECT_GT(rows[1]["percent_of_ideal"].get<double>(), 0);
}

TEST_F(OwnPolicies, OneForAnotherInterfaceIsRefusedInOneSentence) {
  std::string source = example();
  source.insert(source.find("#include <vedette/own_policy.h>") + 32,
                "#define policy_interface() policy_interface() + 1\n");
  const auto ran = compare(quoted(built("old", source)));
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.text, HasSubstr("was built for the policy interface 3"));
  EXPECT_THAT(ran.text, HasSubstr("build it again with this vedette's headers\n"));
}

TEST_F(OwnPolicies, WhatIsNoPolicyIsSaidInOneSentence) {
  EXPECT_THAT(compare("./nowhere.so").text, HasSubstr("./nowhere.so cannot be opened; is the path right?"));
  EXPECT_THAT(compare(quoted(built("empty", "int nothing;\n"))).text, HasSubstr("has no policy; end its source"));
  std::ofstream(folder_ / "text.so") << "no library";
  EXPECT_THAT(compare(quoted((folder_ / "text.so").string())).text, HasSubstr("cannot be loaded: "));
  std::string twin = example();
  twin.replace(twin.rfind("\"largest-first\""), 15, "\"lms\"");
  EXPECT_THAT(compare(quoted(built("twin", twin))).text, HasSubstr("calls its policy 'lms', as one of vedette's"));
}

}  // namespace
}  // namespace vedette::own_policy_test
