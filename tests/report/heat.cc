// How often each layer used each page: counted where ticks were of ops, inferred where they were of layers; the map
// that shows it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/report.h"
#include "report/hand_made.h"

namespace vedette::report::heat_test {
namespace {

using ::testing::ElementsAre;

Report hand_made(const ReportOptions& options = {}) {
  const by_hand::Folder folder;
  return analyse(load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value(), options);
}

TEST(ReportHeat, CountsReadsAndWritesOfEachPageByLayer) {
  const Heat heat = hand_made().heat;
  EXPECT_EQ(heat.counted, Counted::ops) << "a page is told after an op within a layer";
  using R = HeatRange;
  EXPECT_THAT(heat.ranges, ElementsAre(R{.layer = 0, .tensor = 0, .pages = {0, 4}, .reads = 1, .writes = 0},
                                       R{.layer = 1, .tensor = 0, .pages = {0, 4}, .reads = 1, .writes = 1},
                                       R{.layer = 0, .tensor = 1, .pages = {0, 1}, .reads = 1, .writes = 1},
                                       R{.layer = 0, .tensor = 1, .pages = {1, 2}, .reads = 0, .writes = 2},
                                       R{.layer = 1, .tensor = 1, .pages = {0, 2}, .reads = 1, .writes = 0},
                                       R{.layer = 0, .tensor = 2, .pages = {0, 1}, .reads = 1, .writes = 1}));
}

// The hand-made step as a session at ticks of layers sees it: pages once a layer, told with its last op.
report::Run at_ticks_of_layers() {
  const by_hand::Folder folder;
  report::Run run = load_run(by_hand::record_by_hand(folder.file("run.vedette"))).value();
  for (PageAccess& a : run.profiles[0].trace.pages) a.op = {a.op.value < 3 ? 2u : 3u};
  return run;
}

TEST(ReportHeat, SaysThatCountsOfPagesSeenOnceALayerAreOfOperands) {
  report::Run run = at_ticks_of_layers();
  run.profiles[0].trace.pages = {{.op = {2}, .tensor = {1}, .pages = {0, 1}, .read = true, .written = true},
                                 {.op = {3}, .tensor = {0}, .pages = {0, 4}, .read = true}};
  const Heat heat = analyse(run, {}).heat;
  EXPECT_EQ(heat.counted, Counted::layers);
  using R = HeatRange;
  EXPECT_THAT(heat.ranges, ElementsAre(R{.layer = 1, .tensor = 0, .pages = {0, 4}, .reads = 1, .writes = 0},
                                       R{.layer = 0, .tensor = 1, .pages = {0, 1}, .reads = 1, .writes = 2}))
      << "of the three ops of the first layer one reads the tensor and two write it";
}

TEST(ReportHeat, CountsAnOpOnceThoughAnotherOneBeforeItTouchedNothing) {
  report::Run run = at_ticks_of_layers();
  run.profiles[0].trace.pages = {{.op = {1}, .tensor = {2}, .pages = {0, 1}, .written = true},
                                 {.op = {2}, .tensor = {1}, .pages = {1, 2}, .written = true}};
  const Heat heat = analyse(run, {}).heat;
  EXPECT_EQ(heat.counted, Counted::ops);
  using R = HeatRange;
  EXPECT_THAT(heat.ranges, ElementsAre(R{.layer = 0, .tensor = 1, .pages = {1, 2}, .reads = 0, .writes = 1},
                                       R{.layer = 0, .tensor = 2, .pages = {0, 1}, .reads = 0, .writes = 1}))
      << "the first op, which writes the tensor, was looked at and touched none of its pages";
}

TEST(ReportHeat, ItsOverviewHasTensorsInTheOrderOfTheirFirstTouchAndLosesNoAccess) {
  const Heat heat = hand_made().heat;
  EXPECT_THAT(heat.order, ElementsAre(0u, 1u, 2u));
  EXPECT_THAT(heat.columns, ElementsAre(0, 1));
  ASSERT_EQ(heat.rows.size(), 7u) << "one for each page where there are few";
  EXPECT_EQ(heat.rows[4].first_tensor, 1u);
  EXPECT_THAT(heat.reads[4], ElementsAre(1.0f, 1.0f));
  EXPECT_THAT(heat.writes[5], ElementsAre(2.0f, 0.0f));
  const Heat coarse = hand_made({.simulate = {}, .bound = {}, .plain_step = {}, .heat_rows = 3}).heat;
  double touches = 0;
  for (std::size_t r = 0; r < coarse.rows.size(); ++r)
    for (std::size_t c = 0; c < 2; ++c)
      touches +=
          static_cast<double>(coarse.rows[r].pages) * static_cast<double>(coarse.reads[r][c] + coarse.writes[r][c]);
  EXPECT_NEAR(touches, 4 + 8 + 2 + 2 + 2 + 2, 1e-4);
}

}  // namespace
}  // namespace vedette::report::heat_test
