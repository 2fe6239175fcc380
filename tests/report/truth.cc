// A program with a known access pattern gives exactly that heat map, with each page tracker: reads and writes apart,
// page by page, through the session, the recorder and the report.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "profiler/report/report.h"
#include "report/hand_made.h"
#include "vedette/session.h"

namespace vedette::report::truth_test {
namespace {

constexpr Bytes chunk = 64_KiB;
constexpr std::size_t page = 4096, words = page / 8;

struct Memory {
  std::uint64_t* data = nullptr;
  std::uint64_t& page_at(std::size_t p) const { return data[p * words]; }
};

Memory make(Session& session, std::string_view name, std::size_t pages, bool persistent) {
  return {reinterpret_cast<std::uint64_t*>(
      session.allocate({.bytes = {pages * page}, .name = name, .persistent = persistent}).value())};
}

// Each op reads or writes a tensor, never both, so that what a tracker sees of a page is all there is to know.
void train_one_step(Session& session, const Memory& weight, const Memory& ballast, std::uint64_t& sum) {
  auto step = session.step();
  Memory activation;
  {
    auto layer = session.layer("encoder", Phase::forward);
    auto op = session.op("embed", std::array<const void*, 1>{weight.data}, {});
    activation = make(session, "activation", 24, false);
    for (const std::size_t p : {2u, 3u, 4u, 17u}) sum += weight.page_at(p);
    for (std::size_t p = 0; p < 24; p += 2) activation.page_at(p) = sum + p;
  }
  {
    auto layer = session.layer("decoder", Phase::forward);
    {
      auto op = session.op("attend", std::array<const void*, 1>{activation.data}, {});
      for (const std::size_t p : {4u, 6u, 8u}) sum += activation.page_at(p);
    }
    auto op = session.op("attend again", std::array<const void*, 1>{activation.data}, {});
    for (const std::size_t p : {6u, 8u, 10u}) sum += activation.page_at(p);
  }
  {
    auto layer = session.layer("ballast", Phase::forward);  // with little room it takes the others' place
    auto op = session.op("lift", std::array<const void*, 1>{ballast.data}, {});
    for (std::size_t p = 0; p < 128; p += 16) sum += ballast.page_at(p);
  }
  {
    auto layer = session.layer("encoder", Phase::backward);
    auto op = session.op("update", {}, std::array<const void*, 1>{weight.data});
    for (const std::size_t p : {0u, 1u, 31u}) weight.page_at(p) = sum;
  }
  Session::release(reinterpret_cast<std::byte*>(activation.data));
}

using Seen =
    std::map<std::tuple<std::string, std::string, std::string, std::uint64_t>, std::pair<std::uint32_t, std::uint32_t>>;

// By (layer, phase, tensor, page): reads and writes.
Seen known() {
  Seen seen;
  for (const std::uint64_t p : {2u, 3u, 4u, 17u}) seen[{"encoder", "forward", "weight", p}] = {1, 0};
  for (std::uint64_t p = 0; p < 24; p += 2) seen[{"encoder", "forward", "activation", p}] = {0, 1};
  for (const std::uint64_t p : {4u, 10u}) seen[{"decoder", "forward", "activation", p}] = {1, 0};
  for (const std::uint64_t p : {6u, 8u}) seen[{"decoder", "forward", "activation", p}] = {2, 0};
  for (std::uint64_t p = 0; p < 128; p += 16) seen[{"ballast", "forward", "ballast", p}] = {1, 0};
  for (const std::uint64_t p : {0u, 1u, 31u}) seen[{"encoder", "backward", "weight", p}] = {0, 1};
  return seen;
}

Seen shown(const Report& report) {
  std::map<std::int64_t, const LayerRow*> layers;
  for (const LayerRow& layer : report.layers) layers[layer.layer] = &layer;
  Seen seen;
  for (const HeatRange& range : report.heat.ranges)
    for (std::uint64_t p = range.pages.begin; p < range.pages.end; ++p)
      seen[{layers.at(range.layer)->name, layers.at(range.layer)->phase, report.tensors[range.tensor].name, p}] = {
          range.reads, range.writes};
  return seen;
}

class GroundTruth : public ::testing::TestWithParam<std::tuple<const char*, std::uint32_t>> {};

TEST_P(GroundTruth, IsTheHeatMapOfTheReport) {
  const auto [tracker, frames] = GetParam();
  const by_hand::Folder folder;
  const std::string path = folder.file("truth.vedette");
  std::string messages;
  {
    auto recorder = Recorder::open({.path = path, .program = "a known pattern"}).value();
    auto opened = Session::open({.fast_memory = {frames * chunk.value},
                                 .slow = "host",
                                 .policy = "sentinel",
                                 .chunk = chunk,
                                 .profile = ProfileTicks::ops,
                                 .tracker = tracker,
                                 .observer = recorder.get(),
                                 .on_message = [&](std::string_view m) { messages.append(m).append("\n"); }});
    if (!opened) GTEST_SKIP() << opened.error().message;
    const auto session = std::move(*opened);
    const Memory weight = make(*session, "weight", 32, true), ballast = make(*session, "ballast", 128, true);
    std::uint64_t sum = 0;
    for (int step = 0; step < 4; ++step) train_one_step(*session, weight, ballast, sum);
    for (const Memory& memory : {weight, ballast}) Session::release(reinterpret_cast<std::byte*>(memory.data));
  }
  if (messages.find("profiling sees no pages") != std::string::npos) GTEST_SKIP() << messages;
  const Report report = analyse(load_run(path).value(), {});
  ASSERT_EQ(report.heat.counted, Counted::ops);
  EXPECT_EQ(shown(report), known());
}

INSTANTIATE_TEST_SUITE_P(Trackers, GroundTruth,
                         ::testing::Combine(::testing::Values("zap", "missing", "mprotect"),
                                            ::testing::Values(16u, 10u)),
                         [](const auto& each) {
                           std::string name = std::get<0>(each.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (std::get<1>(each.param) == 16 ? "_with_room" : "_with_little_room");
                         });

}  // namespace
}  // namespace vedette::report::truth_test
