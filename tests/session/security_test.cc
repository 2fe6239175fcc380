// What others can see of a session's memory, and what hostile names do to it: nothing.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "session/loop.h"

namespace vedette {
namespace {

using testing::Block;
using testing::Loop;
using testing::open_session;

struct OpenFile {
  std::string target;
  struct stat facts {};
};

// Files without a name that this process has open: the store's, and those of shared memory.
std::vector<OpenFile> nameless_files() {
  std::vector<OpenFile> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    OpenFile file{.target = std::filesystem::read_symlink(entry.path(), gone).string()};
    if (file.target.ends_with(" (deleted)") && ::stat(entry.path().c_str(), &file.facts) == 0 && S_ISREG(file.facts.st_mode)) found.push_back(file);
  }
  return found;
}

TEST(Security, FilesHaveNoNameAndNobodyElseMayReadThem) {
  std::string folder = (std::filesystem::current_path() / "vedette-secret-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto before = nameless_files().size();
  const mode_t mask = ::umask(0);    // the worst that a program can have set
  {
    const auto session = open_session(1_MiB, "nvme:" + folder, "vedette");
    Loop loop(*session, 4, 100'000);
    std::size_t most = 0;
    loop.in_op = [&](std::size_t) {  // in every phase, the profiling step with its shared memory among them
      const auto files = nameless_files();
      most = std::max(most, files.size());
      for (const OpenFile& file : files) {
        EXPECT_EQ(file.facts.st_mode & 077, 0u) << file.target;
        EXPECT_EQ(file.facts.st_nlink, 0u) << file.target;
        EXPECT_EQ(file.facts.st_uid, ::geteuid());
      }
    };
    for (std::uint64_t s = 0; s < 4; ++s) loop.step(s);
    EXPECT_GT(most, before);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  ::umask(mask);
  std::filesystem::remove(folder);
}

TEST(Security, AFolderThatIsNoneIsRefusedInOneSentence) {
  for (const std::string& slow : std::vector<std::string>{"nvme:/nonexistent/folder", "nvme:/etc/passwd", "nvme:", "nvme:/proc",
                                                          "nvme:" + std::string(5000, 'x'), "nvme:/tmp/%s%n%s", "nvme:\n\x1b[31m", "nvme",
                                                          std::string("host\0nvme:.", 11)}) {
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
  const std::string hostile[] = {"%s%s%s%n", std::string("nul\0inside", 10), std::string(1 << 20, 'x'), "\n\r\x1b]0;", "\xc3\x28", ""};
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

// A file system gives no block of a deleted file to another one without clearing it; the store must not ask for that (FALLOC_FL_NO_HIDE_STALE
// and the like), so what a new session reads before it has written is zeros.
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

}  // namespace
}  // namespace vedette
