// The profiling step sees every page that the program touches. Every access of the made loop is known. It runs with
// each tracker, at ticks of ops and of layers, with room for all memory and with too little.
#include "session/page_profile.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/fd.h"
#include "os/tracker_kinds.h"
#include "session/core.h"
#include "session/registry.h"
#include "vedette/session.h"

namespace vedette::page_profile_test {
namespace {

constexpr Bytes chunk = 64_KiB;
constexpr std::size_t page = 4096, words = page / 8;

struct Block {
  std::uint64_t* data = nullptr;
  std::uint64_t& at(std::size_t p, std::size_t i = 0) const { return data[p * words + i]; }
};

Block make(Session& session, std::string_view name, std::size_t bytes, bool persistent = false) {
  auto memory = session.allocate({.bytes = {bytes}, .name = name, .persistent = persistent});
  return {reinterpret_cast<std::uint64_t*>(std::move(memory).value())};
}
void drop(Block block) { Session::release(reinterpret_cast<std::byte*>(block.data)); }

using Operands = std::vector<const void*>;

// 32 + 32 pages live through all steps, 48 + 8 * 32 and two small tensors in one: 25 chunks with the slab. Each step
// adds to what it touches, so that lost bytes show.
class Loop {
 public:
  explicit Loop(Session& session) : session_(session) {
    weight_ = make(session, "weight", 32 * page, true);
    statistic_ = make(session, "statistic", 32 * page, true);
    for (std::size_t p = 0; p < 32; ++p) weight_.at(p) = p, statistic_.at(p) = 100 + p;
  }
  ~Loop() { drop(weight_), drop(statistic_); }

  void step(std::uint64_t input) {
    auto scope = session_.step();
    Block activation, little, less;
    std::vector<Block> fillers;
    {
      auto layer = session_.layer("first", Phase::forward);
      {
        auto op = session_.op("fill", {}, {});
        activation = make(session_, "activation", 48 * page);
        for (std::size_t p = 0; p < 8; ++p) activation.at(p) = input + p;  // the other 40 pages: nobody's
      }
      {
        auto op = session_.op("sum", Operands{activation.data}, {});
        little = make(session_, "little", 512);
        less = make(session_, "less", 256);
        little.data[0] = activation.at(2) + activation.at(3);
      }
    }
    {
      auto layer = session_.layer("second", Phase::forward);
      {
        auto op = session_.op("half", Operands{weight_.data, little.data}, {});
        for (std::size_t p = 4; p < 9; ++p) total_ += weight_.at(p) * little.data[0];
      }
      auto op = session_.op("secret", Operands{activation.data}, {});
      total_ += activation.at(7);
      statistic_.at(5) += input;  // announced by nobody
    }
    for (int f = 0; f < 8; ++f) {
      auto layer = session_.layer("filler", Phase::forward);
      auto op = session_.op("filler", {}, {});
      fillers.push_back(make(session_, "filler", 32 * page));
      for (std::size_t p = 0; p < 32; ++p) fillers.back().at(p, 3) = input * p;
    }
    auto layer = session_.layer("first", Phase::backward);
    auto op = session_.op("back", Operands{activation.data, weight_.data, fillers[0].data}, Operands{weight_.data});
    for (std::size_t p = 0; p < 8; ++p) total_ += activation.at(p) + fillers[0].at(p + 9, 3);
    for (std::size_t p = 10; p < 12; ++p) weight_.at(p) += total_;
    less.data[0] = 1;
    total_ += statistic_.at(9);
    for (const Block b : fillers) drop(b);
    drop(activation), drop(little), drop(less);
  }
  std::uint64_t result() const {
    std::uint64_t all = total_;
    for (std::size_t p = 0; p < 32; ++p) all = (all * 31 + weight_.at(p)) * 31 + statistic_.at(p);
    return all;
  }
  detail::SessionCore& core() const { return *detail::owner_of(weight_.data); }

 private:
  Session& session_;
  Block weight_, statistic_;
  std::uint64_t total_ = 0;
};

std::string text(const Span<std::uint64_t>& pages, bool read, bool written) {
  return (std::string(read ? "r" : "") + (written ? "w" : "")).append(" ") + std::to_string(pages.begin) + "-" +
         std::to_string(pages.end);
}

using Seen = std::map<std::string, std::vector<std::string>>;  // "op tensor" -> "rw 4-9"

Seen seen(const Trace& trace) {
  Seen all;
  for (const PageAccess& a : trace.pages)
    all[trace.ops[a.op.value].name + " " + trace.tensors[a.tensor.value].name].push_back(
        text(a.pages, a.read, a.written));
  return all;
}

bool announces(const Trace& trace, std::string_view op, std::string_view tensor, bool write) {
  for (const Op& o : trace.ops) {
    if (o.name != op) continue;
    for (const TensorIndex t : write ? o.writes : o.reads)
      if (trace.tensors[t.value].name == tensor) return true;
  }
  return false;
}

std::uint64_t result_of_nobody_watching(int steps) {
  auto session = Session::open({.fast_memory = 64_MiB,
                                .slow = "host",
                                .policy = "on-demand",
                                .chunk = chunk,
                                .profile = ProfileTicks::operands});
  Loop loop(**session);
  for (int s = 0; s < steps; ++s) loop.step(static_cast<std::uint64_t>(s) * 7 + 1);
  return loop.result();
}

struct Case {
  const char* tracker;
  ProfileTicks ticks;
  std::uint32_t frames;  // 28 hold everything, 10 are 40 %, with 8 the last op runs paged
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.tracker;
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (info.param.ticks == ProfileTicks::ops ? "_ops" : "_layers") +
         (info.param.frames == 28   ? "_with_room"
          : info.param.frames == 10 ? "_with_little_room"
                                    : "_paged");
}

class PageProfile : public ::testing::TestWithParam<Case> {
 protected:
  // Trains four steps, the second of which is profiled. False: this machine lacks the source.
  bool train(std::uint64_t* result = nullptr) {
    auto session = Session::open({.fast_memory = {GetParam().frames * chunk.value},
                                  .slow = "host",
                                  .policy = "sentinel",
                                  .chunk = chunk,
                                  .profile = GetParam().ticks,
                                  .tracker = GetParam().tracker,
                                  .on_message = [&](std::string_view m) { messages_.append(m).append("\n"); }});
    if (!session) {
      messages_ = session.error().message;
      return false;
    }
    Loop loop(**session);
    for (int s = 0; s < 4; ++s) loop.step(static_cast<std::uint64_t>(s) * 7 + 1);
    if (result != nullptr) *result = loop.result();
    phase_ = (*session)->phase();
    trace_ = *(*session)->trace();
    return messages_.find("profiling sees no pages") == std::string::npos;
  }
  Trace trace_;
  std::string messages_, phase_;
};

#define TRAIN_OR_SKIP(...) \
  if (!train(__VA_ARGS__)) GTEST_SKIP() << messages_

TEST_P(PageProfile, TellsWhichPagesWereReadAndWhichWritten) {
  TRAIN_OR_SKIP();
  const Seen layers{{"sum activation", {"rw 0-8"}},
                    {"sum little", {"w 0-1"}},
                    {"secret weight", {"r 4-9"}},
                    {"secret little", {"r 0-1"}},
                    {"secret activation", {"r 7-8"}},
                    {"secret statistic", {"w 5-6"}},
                    {"filler filler", std::vector<std::string>(8, "w 0-32")},
                    {"back activation", {"r 0-8"}},
                    {"back filler", {"r 9-17"}},
                    {"back weight", {"rw 10-12"}},
                    {"back less", {"w 0-1"}},
                    {"back statistic", {"r 9-10"}}};
  const Seen ops{{"fill activation", {"w 0-8"}},  {"sum activation", {"r 2-4"}},
                 {"sum little", {"w 0-1"}},       {"half weight", {"r 4-9"}},
                 {"half little", {"r 0-1"}},      {"secret activation", {"r 7-8"}},
                 {"secret statistic", {"w 5-6"}}, {"filler filler", std::vector<std::string>(8, "w 0-32")},
                 {"back activation", {"r 0-8"}},  {"back filler", {"r 9-17"}},
                 {"back weight", {"rw 10-12"}},   {"back less", {"w 0-1"}},
                 {"back statistic", {"r 9-10"}}};
  EXPECT_EQ(seen(trace_), GetParam().ticks == ProfileTicks::ops ? ops : layers) << "whatever the tracker is";
}

TEST_P(PageProfile, LearnsTheWritesThatNobodyAnnounced) {
  TRAIN_OR_SKIP();
  EXPECT_TRUE(announces(trace_, "secret", "statistic", true));
  EXPECT_TRUE(announces(trace_, "back", "statistic", false));
  EXPECT_FALSE(announces(trace_, "back", "statistic", true));
  EXPECT_TRUE(announces(trace_, "back", "weight", true)) << "an announced write stays one";
  EXPECT_FALSE(announces(trace_, "half", "weight", true));
}

TEST_P(PageProfile, ShowsSmallTensorsWithTheirSizes) {
  TRAIN_OR_SKIP();
  std::map<std::string, std::uint64_t> sizes;
  for (const Tensor& t : trace_.tensors) sizes[t.name] = t.bytes.value;
  EXPECT_EQ(sizes["little"], 512u);
  EXPECT_EQ(sizes["less"], 256u);
}

TEST_P(PageProfile, LosesNoByteAndIsFollowedByThePlan) {
  const std::uint64_t right = result_of_nobody_watching(4);
  std::uint64_t result = 0;
  TRAIN_OR_SKIP(&result);
  EXPECT_EQ(result, right);
  EXPECT_EQ(phase_, "planned");
  EXPECT_EQ(messages_.find("misses"), std::string::npos) << messages_;
}

// Beyond 32 MiB all pages are looked at now and then. Nine layers touch 4 MiB each, and two of them 8 KiB of a tensor
// that none announces: what may be late is said in the trace, with pages and layers.
class LatePages : public ::testing::TestWithParam<const char*> {};

TEST_P(LatePages, AreANoteOfTheTrace) {
  constexpr std::size_t pages = 1024, tensors = 12;
  std::string messages;
  auto session = Session::open({.fast_memory = 64_MiB,
                                .slow = "host",
                                .policy = "sentinel",
                                .chunk = chunk,
                                .profile = ProfileTicks::layers,
                                .tracker = GetParam(),
                                .on_message = [&](std::string_view m) { messages.append(m).append("\n"); }});
  if (!session) GTEST_SKIP() << session.error().message;
  std::vector<Block> blocks;
  for (std::size_t t = 0; t < tensors; ++t) blocks.push_back(make(**session, "tensor", pages * page, true));
  const Block secret = make(**session, "secret", 4 * page, true);
  for (int s = 0; s < 4; ++s) {
    auto scope = (*session)->step();
    for (std::size_t t = 0; t < tensors; ++t) {
      auto layer = (*session)->layer("layer " + std::to_string(t), Phase::forward);
      auto op = (*session)->op("op " + std::to_string(t), {}, Operands{blocks[t].data});
      for (std::size_t p = 0; p < pages; ++p) blocks[t].at(p) = p;
      if (t == 2 || t == 7) secret.at(t == 2 ? 0 : 2) = secret.at(t == 2 ? 1 : 3) = 1;
    }
  }
  const Trace trace = *(*session)->trace();
  for (const Block& block : blocks) drop(block);
  drop(secret);
  if (messages.find("profiling sees no pages") != std::string::npos) GTEST_SKIP() << messages;
  std::uint64_t told = 0, late = 0, most = 0;
  for (const PageAccess& a : trace.pages) {
    if (trace.tensors[a.tensor.value].name != "secret") continue;
    EXPECT_TRUE(a.written && !a.read);
    for (std::uint64_t p = a.pages.begin; p < a.pages.end; ++p, ++told) {
      const std::uint32_t touched = p < 2 ? 2 : 7;
      EXPECT_GE(a.op.value, touched);
      late += a.op.value > touched;
      most = std::max<std::uint64_t>(most, a.op.value - touched);
    }
  }
  EXPECT_EQ(told, 4u);
  ASSERT_EQ(trace.notes.size(), 1u) << late << " were late";
  unsigned long pages_told = 0, layers_told = 0;
  ASSERT_EQ(std::sscanf(trace.notes[0].c_str(),
                        "Accesses that no op announced: %lu pages were seen up to %lu layers after they were touched.",
                        &pages_told, &layers_told),
            2)
      << trace.notes[0];
  EXPECT_GE(pages_told, late);
  EXPECT_LE(pages_told, told);
  EXPECT_GE(layers_told, most);
  EXPECT_GT(late, 0u);
}

INSTANTIATE_TEST_SUITE_P(Trackers, LatePages, ::testing::Values("zap", "missing", "mprotect"),
                         [](const auto& named) { return std::string(named.param); });

// zap, which sessions take, in every form; the others at both ticks, with room and with little.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* const tracker : {"zap", "missing", "mprotect"})
    for (const ProfileTicks ticks : {ProfileTicks::ops, ProfileTicks::layers})
      for (const std::uint32_t frames : {28u, 10u, 8u})
        if (frames != 8 || tracker == std::string_view("zap")) all.push_back({tracker, ticks, frames});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Trackers, PageProfile, ::testing::ValuesIn(cases()), name_of);

// Three steps, the second of which is profiled; in each the kernel writes three pages of one tensor and reads two of
// another.
class SystemCalls : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const TrackerKind& kind : tracker_kinds()) {
      if (kind.name != std::string_view(GetParam())) continue;
      auto tracker = kind.open();
      if (!tracker) GTEST_SKIP() << tracker.error().message;
      sees_ = (*tracker)->sees_system_calls();
    }
    auto session = Session::open({.fast_memory = {28 * chunk.value},
                                  .slow = "host",
                                  .policy = "sentinel",
                                  .chunk = chunk,
                                  .profile = ProfileTicks::ops,
                                  .tracker = GetParam(),
                                  .on_message = [](std::string_view) {}});
    if (!session) GTEST_SKIP() << session.error().message;
    session_ = std::move(*session);
  }
  void train(bool resident) {
    const Fd file{::memfd_create("file", MFD_CLOEXEC)};
    const std::vector<char> content(4 * page, 'x');
    ASSERT_EQ(::pwrite(file.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
    const Block from = make(*session_, "from", 32 * page, true), to = make(*session_, "to", 32 * page, true);
    for (int s = 0; s < 3; ++s) {
      const auto step = session_->step();
      const auto layer = session_->layer("only", Phase::forward);
      const auto op = session_->op("calls", Operands{from.data}, Operands{to.data});
      std::unique_ptr<ResidentScope> kept[2];
      if (resident) {
        kept[0].reset(new ResidentScope(session_->resident(from.data)));
        kept[1].reset(new ResidentScope(session_->resident(to.data)));
      }
      ASSERT_EQ(::pread(file.get(), &to.at(4), 3 * page, 0), static_cast<ssize_t>(3 * page))
          << "step " << s << ", errno " << errno;
      ASSERT_EQ(::pwrite(file.get(), &from.at(9), 2 * page, 0), static_cast<ssize_t>(2 * page))
          << "step " << s << ", errno " << errno;
    }
    drop(from), drop(to);
  }
  std::unique_ptr<Session> session_;
  bool sees_ = false;
};

TEST_P(SystemCalls, IntoProfiledTensorsAreServedAndSeen) {
  if (!sees_) GTEST_SKIP() << GetParam() << " lets them fail with EFAULT here, which tracker_names() says";
  train(false);
  const Seen all = seen(*session_->trace());
  EXPECT_EQ(all, (Seen{{"calls from", {"r 9-11"}}, {"calls to", {"w 4-7"}}}));
}

TEST_P(SystemCalls, IntoResidentTensorsAreServedByEveryTracker) { train(true); }

INSTANTIATE_TEST_SUITE_P(Trackers, SystemCalls, ::testing::Values("zap", "missing", "mprotect"),
                         [](const auto& each) { return std::string(each.param); });

TEST(PageProfileTrackers, ThatNobodyKnowsAreRefusedWithTheNamesOfThoseThereAre) {
  const auto session =
      Session::open({.fast_memory = 2_MiB, .slow = "host", .chunk = chunk, .tracker = "seeing-stones"});
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().message, "no page tracker 'seeing-stones'; there are: best, zap, missing, mprotect");
}

TEST(PageProfileWithoutSource, FallsBackToOperandsAndSaysSoOnce) {
  const std::uint64_t right = result_of_nobody_watching(4);
  std::string messages;
  auto session = Session::open({.fast_memory = {16 * chunk.value},
                                .slow = "host",
                                .policy = "sentinel",
                                .chunk = chunk,
                                .on_message = [&](std::string_view m) { messages.append(m).append("\n"); }});
  ASSERT_TRUE(session.ok());
  Loop loop(**session);
  loop.core().steps().profiling().see_no_pages();
  for (int s = 0; s < 4; ++s) loop.step(static_cast<std::uint64_t>(s) * 7 + 1);
  EXPECT_EQ(loop.result(), right);
  EXPECT_TRUE((*session)->trace()->pages.empty());
  EXPECT_NE(messages.find("profiling sees no pages"), std::string::npos);
  EXPECT_EQ(messages.find("profiling sees no pages"), messages.rfind("profiling sees no pages"));
}

}  // namespace
}  // namespace vedette::page_profile_test
