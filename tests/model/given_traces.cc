// The real training steps that VEDETTE_DATA holds: all are read, and come back as they were.
#include <gtest/gtest.h>

#include "support/traces.h"

namespace vedette::given_traces_test {
namespace {

TEST(GivenTraces, AreReadAndComeBack) {
  const auto files = testing::given_trace_files();
  if (files.empty()) GTEST_SKIP() << "no traces/*.json in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
  for (const auto& file : files) {
    const Result<Trace> trace = parse_trace(testing::read_text(file));
    ASSERT_TRUE(trace.ok()) << file << ": " << trace.error().message;
    EXPECT_EQ(parse_trace(format_trace(*trace)).value(), *trace) << file;
    EXPECT_LE(largest_op_bytes(*trace), peak_bytes(*trace)) << file;
  }
}

TEST(GivenTraces, HaveThePeaksTheirTableTells) {
  struct Row {
    const char* name;
    double peak, largest_op;  // GiB, as printed in the folder's README
  };
  for (const Row& row :
       {Row{"dtr/lstm-128", 5.211, 0.097}, Row{"dtr/unet-6", 7.838, 1.810}, Row{"g10/bert_base-512", 95.11, 4.50}}) {
    const std::filesystem::path file =
        std::filesystem::path(testing::data_folder()) / "traces" / (std::string(row.name) + ".json");
    if (!std::filesystem::exists(file))
      GTEST_SKIP() << file << " is absent; VEDETTE_DATA is '" << testing::data_folder() << "'";
    const Trace trace = testing::load_trace(file);
    const double gib = 1 << 30;
    EXPECT_NEAR(static_cast<double>(peak_bytes(trace).value) / gib, row.peak, 0.0051) << row.name;
    EXPECT_NEAR(static_cast<double>(largest_op_bytes(trace).value) / gib, row.largest_op, 0.0051) << row.name;
  }
}

}  // namespace
}  // namespace vedette::given_traces_test
