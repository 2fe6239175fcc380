// What others can see of a session's memory, and what hostile names do to it: nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "profiler/live.h"
#include "profiler/recorder.h"
#include "session/loop.h"

namespace vedette::security_test {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;

struct OpenFile {
  std::string target;
  struct stat facts {};
};

// Files without a name that this process has opened: the store's, and those of shared memory; `inherited` are others'.
std::vector<OpenFile> nameless_files(const std::vector<OpenFile>& inherited = {}) {
  std::vector<OpenFile> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    OpenFile file{.target = std::filesystem::read_symlink(entry.path(), gone).string()};
    if (!file.target.ends_with(" (deleted)") || ::stat(entry.path().c_str(), &file.facts) != 0 ||
        !S_ISREG(file.facts.st_mode))
      continue;
    const auto is_it = [&](const OpenFile& other) {
      return other.facts.st_dev == file.facts.st_dev && other.facts.st_ino == file.facts.st_ino;
    };
    if (std::none_of(inherited.begin(), inherited.end(), is_it)) found.push_back(file);
  }
  return found;
}

TEST(Security, FilesHaveNoNameAndNobodyElseMayReadThem) {
  std::string folder = (std::filesystem::current_path() / "vedette-secret-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto inherited = nameless_files();
  const mode_t mask = ::umask(0);  // the worst that a program can have set
  {
    const auto session = open_session(1_MiB, "nvme:" + folder, "vedette");
    Loop loop(*session, 4, 100'000);
    std::size_t most = 0;
    loop.in_op = [&](std::size_t) {  // in every phase, the profiling step with its shared memory among them
      const auto files = nameless_files(inherited);
      most = std::max(most, files.size());
      for (const OpenFile& file : files) {
        EXPECT_EQ(file.facts.st_mode & 077, 0u) << file.target;
        EXPECT_EQ(file.facts.st_nlink, 0u) << file.target;
        EXPECT_EQ(file.facts.st_uid, ::geteuid());
      }
    };
    for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
    EXPECT_GT(most, 0u);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  ::umask(mask);
  std::filesystem::remove(folder);
}

TEST(Security, AFolderThatIsNoneIsRefusedInOneSentence) {
  for (const std::string& slow : std::vector<std::string>{
           "nvme:/nonexistent/folder", "nvme:/etc/passwd", "nvme:", "nvme:/proc", "nvme:" + std::string(5000, 'x'),
           "nvme:/tmp/%s%n%s", "nvme:\n\x1b[31m", "nvme", std::string("host\0nvme:.", 11)}) {
    const auto session = Session::open({.fast_memory = 1_MiB, .slow = slow, .chunk = 64_KiB});
    ASSERT_FALSE(session.ok()) << slow;
    EXPECT_FALSE(session.error().message.empty());
  }
}

TEST(Security, AFolderMayHaveAnyName) {
  for (const std::string name : {"a b", "new\nline", "%s%n", "quote\"'`$(id)", "\xff\xfe", ";rm -rf .", "nvme:nvme"}) {
    const auto folder = std::filesystem::current_path() / ("vedette-" + std::to_string(::getpid()) + name);
    std::filesystem::create_directory(folder);
    {
      const auto session = open_session(1_MiB, "nvme:" + folder.string(), "on-demand");
      std::vector<Block> blocks;
      for (std::uint64_t b = 0; b < 30; ++b) blocks.emplace_back(*session, 60'000), blocks.back().fill(b);
      for (std::uint64_t b = 0; b < 30; ++b) EXPECT_TRUE(blocks[b].holds(b));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove(folder);
  }
}

TEST(Security, NamesOfOpsLayersAndTensorsAreOnlyBytes) {
  const auto session = open_session(1_MiB, "host", "vedette");
  const std::string hostile[] = {
      "%s%s%s%n", std::string("nul\0inside", 10), std::string(1 << 20, 'x'), "\n\r\x1b]0;", "\xc3\x28", ""};
  Block weight(*session, 200'000, true);
  weight.fill(1);
  for (int step = 0; step < 4; ++step) {
    auto scope = session->step();
    for (const std::string& name : hostile) {
      const auto layer = session->layer(name);
      const void* reads[] = {weight.address()};
      auto op = session->op(name, reads, {});
      session->label(weight.address(), name, TensorKind::weight);
      Block out(*session, 300'000);
      out.fill(2);
    }
  }
  EXPECT_TRUE(weight.holds(1));
}

// A file system clears the blocks of a deleted file before another file gets them. The store must not ask for stale
// blocks (FALLOC_FL_NO_HIDE_STALE and the like), so a new session reads zeros where it has not written.
TEST(Security, WhatOneSessionWroteTheNextDoesNotRead) {
  constexpr std::uint64_t secret = 0x5EC5E75EC5E75EC5;
  {
    const auto session = open_session(1_MiB, "nvme:.", "on-demand");
    std::vector<Block> blocks;
    for (int b = 0; b < 64; ++b) {
      blocks.emplace_back(*session, 64 << 10);
      for (std::size_t i = 0; i < blocks.back().count(); ++i) blocks.back()[i] = secret;
    }
  }
  const auto session = open_session(1_MiB, "nvme:.", "on-demand");
  std::vector<Block> blocks;
  for (int b = 0; b < 64; ++b) blocks.emplace_back(*session, 64 << 10);
  std::size_t leaked = 0;
  for (Block& block : blocks)
    for (std::size_t i = 0; i < block.count(); ++i) leaked += block[i] == secret ? 1 : 0;
  EXPECT_EQ(leaked, 0u);
}

constexpr std::string_view marker = "SECRETOF";  // fills every tensor

std::uint64_t marker_word() {
  std::uint64_t word = 0;
  std::memcpy(&word, marker.data(), sizeof word);
  return word;
}

// Everything there is of it, the write-ahead log and the live page included.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Trains with tensors of one pattern only, so that no combination of them makes another.
void run_with_markers(Session& session, const std::function<void()>& in_step) {
  std::vector<Block> weights;
  for (int w = 0; w < 6; ++w)
    weights.emplace_back(session, 200'000, true),
        std::fill_n(&weights.back()[0], weights.back().count(), marker_word());
  for (int s = 0; s < 4; ++s) {
    auto step = session.step();
    for (Block& weight : weights) {
      const void* reads[] = {weight.address()};
      auto op = session.op("read", reads, reads);
      Block out(session, 150'000);
      for (std::size_t i = 0; i < out.count(); ++i) out[i] = weight[i];
    }
    in_step();
  }
}

TEST(Security, ARecordingHoldsNoByteOfAnyTensorAndIsTheOwnersOnly) {
  std::string folder = (std::filesystem::current_path() / "vedette-recorded-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const mode_t mask = ::umask(0);  // the worst that a program can have set
  {
    const auto recorder = Recorder::open({.path = folder + "/run.vedette", .program = "security_test"}).value();
    const auto session = open_session(1_MiB, "nvme:" + folder, "vedette", 64_KiB, recorder.get());
    run_with_markers(*session, [&] {
      recorder->flush();
      for (const auto& path : files_in(folder)) {
        struct stat facts {};
        ASSERT_EQ(::lstat(path.c_str(), &facts), 0);
        EXPECT_EQ(facts.st_mode & 0777, 0600u) << path;
        EXPECT_EQ(bytes_of(path).find(marker), std::string::npos) << path;
      }
    });
    EXPECT_GT(session->counters().bytes_out.value, 0u);
  }
  ::umask(mask);
  const auto left = files_in(folder);
  ASSERT_EQ(left.size(), 1u);  // the recording
  const std::string recording = bytes_of(left[0]);
  EXPECT_GT(recording.size(), 1000u);
  EXPECT_EQ(recording.find(marker), std::string::npos);
  EXPECT_NE(recording.find("security_test"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(Security, ARecordingFollowsNoLinkAndReplacesNoFileOfAnotherKind) {
  std::string folder = (std::filesystem::current_path() / "vedette-links-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string link = folder + "/run.vedette", target = folder + "/target";
  std::filesystem::create_symlink(target, link);
  EXPECT_FALSE(Recorder::open({.path = link}).ok());  // a link to nothing yet
  EXPECT_FALSE(std::filesystem::exists(target));
  std::ofstream(target) << "years of work";
  EXPECT_FALSE(Recorder::open({.path = link}).ok());
  EXPECT_EQ(bytes_of(target), "years of work");
  for (const std::string& name :
       std::vector<std::string>{"", folder, folder + "/none/run.vedette", std::string(5000, 'x'), "/proc/self/run"}) {
    const auto recorder = Recorder::open({.path = name});
    ASSERT_FALSE(recorder.ok()) << name;
    EXPECT_FALSE(recorder.error().message.empty());
  }
  for (const std::string name : {"%s%n", "new\nline", "a b;rm -rf .", "\xff\xfe", "file:x?mode=memory"}) {
    EXPECT_TRUE(Recorder::open({.path = folder + "/" + name}).ok()) << name;
    EXPECT_TRUE(std::filesystem::exists(folder + "/" + name)) << name;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace vedette::security_test
