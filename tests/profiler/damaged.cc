// Recordings that are cut, overwritten, foreign, of another version or still being written: a clear error or a correct
// answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "profiler/exports.h"
#include "profiler/recording.h"
#include "profiler/told_run.h"

namespace vedette::damaged_test {
namespace {

using ::testing::HasSubstr;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path + "-wal");
  std::filesystem::remove(path + "-shm");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void change(const std::string& path, const char* sql) {
  auto database = Database::open(path, Database::Mode::create).value();
  database.run(sql);
  ASSERT_FALSE(database.failure().has_value()) << database.failure()->message;
}

// Everything that reads: it may refuse, with a sentence, and may not die. The number of readers that answered.
int read_all(const std::string& path) {
  int answered = 0;
  const auto seen = [&](const auto& result) {
    answered += result.ok() ? 1 : 0;
    if (!result.ok()) {
      EXPECT_FALSE(result.error().message.empty());
    }
  };
  auto recording = Recording::open(path);
  seen(recording);
  if (recording.ok()) {
    seen(recording->headline());
    auto profiles = recording->profiles();
    if (profiles.ok() && !profiles->empty()) seen(recording->layers_by_pages(profiles->front()));
  }
  for (const ExportFormat& format : export_formats()) {
    std::ostringstream out;
    seen(export_recording(path, format.name, {.object = 4_KiB, .table = "tensors"}, out));
  }
  return answered;
}

TEST(Damaged, ASoundRecordingAnswersEverything) { EXPECT_EQ(read_all(told::record_run("sound.vedette", 3)), 10); }

TEST(Damaged, RefusesWhatIsCut) {
  const std::string path = told::record_run("cut.vedette", 20), whole = bytes_of(path);
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, std::size_t{99}, std::size_t{100}, std::size_t{4096},
                                 whole.size() / 2, whole.size() - 4096, whole.size() - 1}) {
    put(path, whole.substr(0, kept));
    read_all(path);
    if (kept <= 100) {
      EXPECT_FALSE(Recording::open(path).ok()) << kept;
    }
  }
}

TEST(Damaged, SurvivesFlippedBytes) {
  const std::string path = told::record_run("flipped.vedette", 5), whole = bytes_of(path);
  std::mt19937_64 random(7);
  for (int round = 0; round < 150; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 20; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    put(path, damaged);
    read_all(path);
  }
}

TEST(Damaged, SaysWhichVersionItIs) {
  const std::string path = told::record_run("version.vedette", 1);
  change(path, "PRAGMA user_version=1");
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("is not that of schema 1"));
  change(path, "PRAGMA user_version=0");
  EXPECT_THAT(
      Recording::open(path).error().message,
      HasSubstr("has schema 0, and this program reads schemas 1 to 8; use the vedette that wrote it, or record anew"));
  change(path, "PRAGMA user_version=99");
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("or a newer one"));
  EXPECT_EQ(Recording::open(path).error().cause, Cause::unsupported);
  EXPECT_EQ(read_all(path), 0);
}

TEST(Damaged, RefusesForeignFiles) {
  const std::string path = told::fresh_path("foreign.vedette");
  put(path, "this is a letter, and not at all a database of any kind, however long it goes on about other things");
  EXPECT_EQ(Recording::open(path).error().cause, Cause::malformed_input);
  std::filesystem::remove(path);
  change(path, "CREATE TABLE moves(a); INSERT INTO moves VALUES(1)");
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("is not a recording"));
  change(path, "PRAGMA application_id=1986294900; PRAGMA user_version=7");
  EXPECT_EQ(Recording::open(path).error().cause, Cause::malformed_input);
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("is damaged"));
  EXPECT_FALSE(Recording::open(std::filesystem::temp_directory_path()).ok());
}

TEST(Damaged, RefusesTablesThatAreQueries) {
  const std::string path = told::record_run("view.vedette", 1);
  change(path,
         "DROP TABLE steps; CREATE VIEW steps AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
         "SELECT i AS step FROM n");
  EXPECT_THAT(Recording::open(path).error().message, HasSubstr("lacks the table steps"));
}

TEST(Damaged, RefusesNumbersThatCannotBe) {
  const char* const damages[] = {"UPDATE operands SET tensor = 4000000000 WHERE op = 0",
                                 "UPDATE ops SET layer = 77",
                                 "UPDATE tensors SET bytes = -1",
                                 "UPDATE page_accesses SET end_page = 1 << 60",
                                 "DELETE FROM tensors WHERE tensor = 0",
                                 "UPDATE tensors SET kind = 'cake'",
                                 "UPDATE profiles SET page_bytes = 0",
                                 "UPDATE page_accesses SET first_page = -5",
                                 "UPDATE tensors SET bytes = 'many'"};
  for (const char* const damage : damages) {
    const std::string path = told::record_run("numbers.vedette", 2);
    change(path, damage);
    read_all(path);
  }
  const std::string path = told::record_run("times.vedette", 2);
  change(path, "UPDATE op_times SET began_ns = 9223372036854775807, ended_ns = -9223372036854775808");
  change(path, "UPDATE moves SET chunk = -1, ended_ns = 1 - 9223372036854775807");
  change(path, "UPDATE steps SET began_ns = -9223372036854775808");
  change(path, "UPDATE moves SET issued_ns = -9223372036854775808; UPDATE stalls SET ended_ns = 9223372036854775807");
  read_all(path);
}

TEST(Damaged, ReadsARecordingThatIsBeingWritten) {
  const std::string path = told::fresh_path("written.vedette");
  auto recorder = Recorder::open({.path = path, .live = false}).value();
  told::tell_run(*recorder, 1);
  recorder->flush();
  for (std::uint64_t step = 2; step < 40; ++step) {
    told::tell_step(*recorder, step);
    const auto headline = Recording::open(path).value().headline();
    ASSERT_TRUE(headline.ok()) << headline.error().message;
    EXPECT_GE(headline->steps, 1u);
    if (step % 8 == 0) {
      EXPECT_EQ(read_all(path), 10);
    }
  }
  recorder.reset();
  EXPECT_EQ(Recording::open(path).value().headline().value().steps, 39u);
}

TEST(Damaged, ReadsWhatAKilledRunLeft) {
  const std::string path = told::fresh_path("left.vedette");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto recorder = Recorder::open({.path = path, .live = false}).value();
    told::tell_run(*recorder, 6);
    recorder->flush();
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(std::filesystem::exists(path + "-wal"));
  EXPECT_EQ(read_all(path), 10);
  // Without its log it has no tables: said, not guessed.
  std::filesystem::remove(path + "-wal");
  std::filesystem::remove(path + "-shm");
  read_all(path);
}

}  // namespace
}  // namespace vedette::damaged_test
