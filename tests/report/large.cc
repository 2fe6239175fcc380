// Recordings of gigabytes: a right report or a sentence that says why not, in bounded memory. VEDETTE_LARGE_MB says how
// large they are made (default 60; docs/results.md has 5,900); the commands run with at most 2 GB of address
// space.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "profiler/sqlite.h"
#include "profiler/told_run.h"

namespace vedette::large_test {
namespace {

using ::testing::AnyOf;

std::uint64_t wanted_bytes() {
  const char* const text = std::getenv("VEDETTE_LARGE_MB");
  return std::strtoull(text == nullptr ? "60" : text, nullptr, 10) * 1'000'000;
}

class Large : public ::testing::Test {
 protected:
  // `sql` inserts ?1 rows, or ?1 times as many rows as it likes: it is repeated until the file is large enough.
  std::string grown(const char* sql) {
    const std::string path = told::record_run("large.vedette", 5);
    auto database = Database::open(path, Database::Mode::create).value();
    database.run(
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; CREATE TEMP TABLE n(i INTEGER PRIMARY KEY);"
        "WITH RECURSIVE c(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM c WHERE i < 99999) INSERT INTO n SELECT i FROM "
        "c");
    Statement insert(database, sql);
    while (!database.failure() && std::filesystem::file_size(path) < wanted_bytes()) {
      database.run("BEGIN");
      insert.run(rounds_++ * 100'000);
      database.run("COMMIT");
    }
    EXPECT_FALSE(database.failure()) << database.failure()->message;
    return path;
  }
  told::Ran vedette(const std::string& arguments) {
    const auto began = std::chrono::steady_clock::now();
    const told::Ran ran =
        told::run(std::string("ulimit -v 2000000; exec timeout 1500 " VEDETTE_CLI " ").append(arguments));
    std::cout << arguments << ": " << std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()
              << " s, status " << ran.status << (ran.status == 0 ? "\n" : "; " + ran.output);
    return ran;
  }
  // Whatever it says, it ends by itself and keeps to its memory.
  void expect_an_end(const std::string& path) {
    const std::string out = " -o '" + told::fresh_path("out") + "'";
    for (const std::string& command :
         {"report '" + path + "' --json" + out, "report '" + path + "' --text" + out, "report '" + path + "'" + out,
          "info '" + path + "'", "export '" + path + "' --to perfetto" + out}) {
      const told::Ran ran = vedette(command);
      EXPECT_THAT(ran.status, AnyOf(0, 1)) << command << ": " << ran.output;
      const bool says_why = ran.output.find("is too large") != std::string::npos ||
                            ran.output.find("too many to sum up") != std::string::npos;
      EXPECT_TRUE(ran.status == 0 || says_why) << command << ": " << ran.output;
    }
  }
  std::uint64_t rounds_ = 0;
};

TEST_F(Large, MovesOfManyStepsAreSummedUp) {
  const std::string path = grown(
      "INSERT INTO moves SELECT 6 + (?1 + i) / 1000, 1000 + ?1 + i, 'fetch', 'urgent', i % 900, 65536, 0, 1, 2, 1 FROM "
      "n");
  const std::string out = told::fresh_path("report.json");
  ASSERT_EQ(vedette("report '" + path + "' --json -o '" + out + "'").status, 0);
  std::ifstream file(out);
  const auto json = nlohmann::json::parse(file);
  std::uint64_t moves = 0;
  for (const auto& cause : json["run"]["causes"]) moves += cause["moves"].get<std::uint64_t>();
  EXPECT_EQ(moves, 10 + rounds_ * 100'000);
  EXPECT_EQ(json["run"]["headline"]["steps"], 5);
  expect_an_end(path);
}

TEST_F(Large, OpsOfOneStepEnd) {
  expect_an_end(grown("INSERT INTO op_times SELECT 3, 10 + ?1 + i, 1, 3000000, 3000001, 65536, 65536, NULL FROM n"));
}

TEST_F(Large, StepsWithoutEndEnd) {
  expect_an_end(
      grown("INSERT INTO steps SELECT 10 + ?1 + i, 'planned', '17293822569102704641', 1, 2, 1, 1, 0, 0, 0, 0, 1, 1, 1, "
            "1, 3, 0, NULL, 0, 0, 0 FROM n"));
}

}  // namespace
}  // namespace vedette::large_test
