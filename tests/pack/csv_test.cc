// Lifetimes are read as MiniMalloc writes them, and what is wrong is said with its line.
#include "pack/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vedette::pack::csv_test {
namespace {

using ::testing::HasSubstr;

TEST(Csv, ReadsColumnsByName) {
  const std::string text = "size,id,upper,lower\r\n7,b,4,1\r\n\r\n5,c,9,4\r\n";
  const Table table = parse_lifetimes(text).value();
  ASSERT_EQ(table.problem.buffers.size(), 2u);
  EXPECT_EQ(table.id[1], "c");
  EXPECT_EQ(table.problem.buffers[0].life, (Span<Time>{1, 4}));
  EXPECT_EQ(table.problem.buffers[0].bytes.value, 7u);
}

TEST(Csv, AnEndCountsInTheLife) {
  EXPECT_EQ(parse_lifetimes("buffer,start,end,size\na,1,4,7\n").value().problem.buffers[0].life, (Span<Time>{1, 5}));
}

TEST(Csv, ComesBackWithOffsets) {
  const std::string text = "id,lower,upper,size,alignment,gaps\na,0,9,8,4,2-3 5-7\nb,1,2,3,1,\n";
  const Table table = parse_lifetimes(text).value();
  ASSERT_EQ(table.problem.away.size(), 2u);
  EXPECT_EQ(table.problem.away[1].when, (Span<Time>{5, 7}));
  EXPECT_EQ(format_layout(table, {0, 8}),
            "id,lower,upper,size,alignment,gaps,offset\na,0,9,8,4,2-3 5-7,0\nb,1,2,3,1,,8\n");
}

TEST(Csv, SaysWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) { return parse_lifetimes(text).error().message; };
  EXPECT_THAT(message(""), HasSubstr("line 1"));
  EXPECT_THAT(message("id,lower,upper\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("id,lower,upper,size,size\n"), HasSubstr("twice"));
  EXPECT_THAT(message("id,lower,upper,size\na,1,2\n"), HasSubstr("line 2"));
  EXPECT_THAT(message("id,lower,upper,size\na,1,2,3\nb,1,x,3\n"), HasSubstr("line 3"));
  EXPECT_THAT(message("id,lower,upper,size\na,1,2,-3\n"), HasSubstr("size"));
  EXPECT_THAT(message("id,lower,upper,size\na,1,2,1e9\n"), HasSubstr("size"));
  EXPECT_THAT(message("id,lower,upper,size\na,3,2,1\n"), HasSubstr("ends before"));
  EXPECT_THAT(message("id,lower,upper,size,alignment\na,1,2,1,0\n"), HasSubstr("alignment"));
  EXPECT_THAT(message("id,lower,upper,size,gaps\na,1,9,1,2-4 3-5\n"), HasSubstr("overlap"));
  EXPECT_THAT(message("id,lower,upper,size,gaps\na,1,9,1,2-14\n"), HasSubstr("gap"));
}

}  // namespace
}  // namespace vedette::pack::csv_test
