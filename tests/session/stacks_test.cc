// The stacks of calls that allocate, in a recording that was asked for them: by the names of the program's own
// functions, this file's static one among them.
#include "profiler/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "profiler/recorder.h"
#include "profiler/report/report.h"
#include "profiler/report/run.h"
#include "vedette/session.h"

using vedette::Session;

namespace program {
namespace {

__attribute__((noinline)) std::byte* allocates_in_a_known_place(Session& session) {
  std::byte* const made = session.allocate({.bytes = vedette::Bytes{300'000}}).value();
  made[0] = std::byte{1};  // so that the call above is not the function's last
  return made;
}

__attribute__((noinline)) std::byte* allocates_elsewhere(Session& session) {
  std::byte* const made = session.allocate({.bytes = vedette::Bytes{200'000}}).value();
  made[0] = std::byte{1};
  return made;
}

__attribute__((noinline)) void trains_a_step(Session& session) {
  const auto step = session.step();
  std::byte *first = nullptr, *second = nullptr;
  {
    const auto op = session.op("first", {}, {});
    first = allocates_in_a_known_place(session);
  }
  {
    const void* const reads[] = {first};
    const auto op = session.op("second", reads, {});
    second = allocates_elsewhere(session);
  }
  {
    const void* const reads[] = {first, second};
    const auto op = session.op("third", reads, {});
  }
  Session::release(first);
  Session::release(second);
}

}  // namespace
}  // namespace program

namespace vedette::stacks_test {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

report::Run recorded(bool stacks) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("stacks_" + std::to_string(::getpid()) + ".vedette")).string();
  {
    const auto recorder = Recorder::open({.path = path, .live = false, .stacks = stacks}).value();
    const auto session =
        Session::open({.fast_memory = 4_MiB, .slow = "host", .chunk = 64_KiB, .observer = recorder.get()}).value();
    for (int s = 0; s < 4; ++s) program::trains_a_step(*session);
  }
  auto run = report::load_run(path).value();
  std::filesystem::remove(path);
  return run;
}

TEST(Stacks, NameTheFunctionsThatAllocatedEachTensor) {
  const report::Report report = report::analyse(recorded(true), {});
  ASSERT_EQ(report.tensors.size(), 2u);
  const auto of_size = [&](std::uint64_t bytes) {
    for (const report::TensorRow& row : report.tensors)
      if (row.bytes.value == bytes) return row.stack;
    return std::vector<std::string>();
  };
  const std::vector<std::string> first = of_size(300'000), second = of_size(200'000);
  ASSERT_GE(first.size(), 3u);
  EXPECT_THAT(first[0], HasSubstr("allocates_in_a_known_place(vedette::Session&)"));
  EXPECT_THAT(first[1], HasSubstr("trains_a_step(vedette::Session&)"));
  EXPECT_THAT(first, Contains("main"));
  EXPECT_THAT(first, Each(Not(StartsWith("std::"))));
  ASSERT_GE(second.size(), 1u);
  EXPECT_THAT(second[0], HasSubstr("allocates_elsewhere(vedette::Session&)"));
}

TEST(Stacks, AreAbsentUnlessAskedFor) {
  const report::Report report = report::analyse(recorded(false), {});
  ASSERT_EQ(report.tensors.size(), 2u);
  for (const report::TensorRow& row : report.tensors) EXPECT_TRUE(row.stack.empty());
}

__attribute__((noinline)) std::uint32_t deep(StackTable& table, int calls) {
  const std::uint32_t number = calls == 0 ? table.here() : deep(table, calls - 1);
  asm volatile("");  // the call above is not the function's last
  return number;
}

TEST(Stacks, AreKeptOnceAndWithinBounds) {
  StackTable table;
  std::vector<std::uint32_t> numbers;
  const volatile int calls = 2;  // not known beforehand: an unrolled loop has two calls
  for (int i = 0; i < calls; ++i) numbers.push_back(deep(table, 3));
  EXPECT_EQ(numbers, (std::vector<std::uint32_t>{1, 1})) << "the same stack";
  EXPECT_NE(deep(table, 4), 1u);
  EXPECT_NE(deep(table, 500), 0u) << "of a deep one the innermost frames";
  EXPECT_EQ(table.size(), 3u);
}

TEST(Symbols, AreNoneOfAFileThatIsNoProgram) {
  EXPECT_EQ(Symbols("/nowhere").at(0), "");
  EXPECT_EQ(Symbols("/proc/self/status").at(0), "");
}

}  // namespace
}  // namespace vedette::stacks_test
