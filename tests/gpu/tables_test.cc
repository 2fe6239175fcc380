// Tables on the simulated GPU: hot pieces become the device's between steps, whatever is queued, with their bytes.
#include "gpu/tables.h"

#include <gmock/gmock.h>

#include <numeric>
#include <optional>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::tables_test {
namespace {

using detail::GpuTables;

constexpr std::uint64_t row_bytes = 4096, rows_a_piece = (2 << 20) / row_bytes, words = row_bytes / 4;

class Tables : public SimulatedGpu {
 protected:
  void SetUp() override {
    SimulatedGpu::SetUp();
    device_ = open_device();
    stream_.emplace(cuda::Stream::create(device_).value());
    numbers_.emplace(cuda::DeviceRange::make(device_, {.bytes = 2_MiB}).value());
    pool_.emplace(device_, cuda::PinnedPool::Options{.most = {}, .piece = 1_MiB});
    open(4_MiB);
  }
  void TearDown() override {
    static_cast<void>(device_->synchronize());
    tables_.reset();
    pool_.reset();
    numbers_.reset();
    stream_.reset();
    device_.reset();
    SimulatedGpu::TearDown();
  }
  void open(Bytes budget) { tables_ = GpuTables::make(device_, budget).value(); }
  GpuTable make(std::uint64_t pieces) {
    GpuTable table = tables_->allocate({pieces * (2 << 20)}).value();
    for (std::uint64_t row = 0; row < pieces * rows_a_piece; row += rows_a_piece)
      launch_fill(stream_->handle(), table.address + row * row_bytes, words, static_cast<std::uint32_t>(row + 1));
    return table;
  }
  // By numbers of the given type; the table has rows `in_all`.
  template <class Number = std::int64_t>
  void look_up(const GpuTable& table, std::vector<Number> rows, std::uint64_t in_all) {
    const Bytes bytes{rows.size() * sizeof(Number)};
    std::byte* const from = pool_->take(bytes).value();
    std::memcpy(from, rows.data(), bytes.value);
    ASSERT_TRUE(device_->copy(stream_->handle(), numbers_->address(), address_of(from), bytes));
    tables_->looked_up({.table = table.address,
                        .rows = in_all,
                        .row_bytes = row_bytes,
                        .numbers = numbers_->address(),
                        .count = rows.size(),
                        .number_bytes = sizeof(Number)},
                       stream_->handle());
  }
  void expect_right(const GpuTable& table, std::uint64_t pieces) {
    for (std::uint64_t row = 0; row < pieces * rows_a_piece; row += rows_a_piece) {
      std::uint32_t sum = 0;
      launch_read(stream_->handle(), table.address + row * row_bytes, words, &sum);
      ASSERT_TRUE(stream_->synchronize());
      EXPECT_EQ(sum, (row + 1) * words) << "row " << row;
    }
  }
  std::shared_ptr<cuda::Device> device_;
  std::optional<cuda::Stream> stream_;
  std::optional<cuda::DeviceRange> numbers_;
  std::optional<cuda::PinnedPool> pool_;
  std::unique_ptr<GpuTables> tables_;
};

TEST_F(Tables, PiecesThatAreLookedUpMostBecomeTheDevicesWithinTheBudget) {
  const std::size_t before = control().most_in_use();  // of the process
  const GpuTable one = make(4), other = make(3);
  look_up<std::int64_t>(one, {0, 1, 2, 600, -1, -2, -3, -4, 99'999},
                        4 * rows_a_piece);  // the last piece is the hottest
  look_up<std::int32_t>(other, {600, 601, 602, 603, 604}, 3 * rows_a_piece);
  ASSERT_TRUE(stream_->synchronize());
  ASSERT_TRUE(tables_->between_steps());
  EXPECT_EQ(tables_->counters().moves, 2u);
  EXPECT_EQ(tables_->counters().device_bytes, (4_MiB).value);
  EXPECT_EQ(tables_->counters().rows_on_host, 13u) << "no row has the number 99999";
  look_up<std::int64_t>(one, {-1}, 4 * rows_a_piece);
  look_up<std::int64_t>(other, {600}, 3 * rows_a_piece);
  ASSERT_TRUE(stream_->synchronize());
  ASSERT_TRUE(tables_->between_steps());
  EXPECT_EQ(tables_->counters().rows_on_device, 2u);
  EXPECT_EQ(tables_->counters().moves, 2u) << "a steady step moves nothing";
  expect_right(one, 4);
  expect_right(other, 3);
  EXPECT_LE(control().most_in_use(), std::max(before, (2_MiB + 4_MiB).value)) << "the numbers, and the budget";
}

// Work is queued on the piece that leaves, and on the one that comes.
TEST_F(Tables, PiecesMoveBehindWhatIsQueued) {
  control().choose({.memory = std::size_t{256} << 20, .gbs = 0.5, .latency_us = 500});
  open(2_MiB);
  const GpuTable table = make(3);
  for (const std::int64_t piece : {1, 2, 0, 2}) {
    for (int again = 0; again < 6; ++again)
      look_up<std::int64_t>(table, std::vector<std::int64_t>(64, piece * 512), 1536);
    std::uint32_t ignored = 0;
    ASSERT_TRUE(stream_->synchronize());  // what was looked up is known; what follows runs on
    for (int i = 0; i < 8; ++i) {
      launch_fill(stream_->handle(), table.address + row_bytes, words, 7);
      launch_read(stream_->handle(), table.address, 3 * (2 << 20) / 4, &ignored);
    }
    ASSERT_TRUE(tables_->between_steps());
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_EQ(tables_->counters().device_bytes, (2_MiB).value);
  }
  EXPECT_EQ(tables_->counters().moves, 3u) << "the second one has not more than twice the score of the first";
  expect_right(table, 3);
}

TEST_F(Tables, OneIsGivenBackBehindWhatIsQueued) {
  GpuTable table = make(2);
  std::uint32_t ignored = 0;
  for (int i = 0; i < 8; ++i) launch_read(stream_->handle(), table.address, 2 * (2 << 20) / 4, &ignored);
  tables_.reset();  // it outlives them
  table = {};
}

// Counting is given up, a piece stays, or the error is a sentence: the bytes are right, and nothing is leaked.
TEST_F(Tables, EachCallOfTheDriverMayFailOnce) {
  int errors = 0;
  for (const char* const call :
       {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyAsync", "cuCtxSynchronize", "cuEventCreate",
        "cuEventRecord", "cuEventQuery", "cuStreamSynchronize", "cuMemHostRegister_v2", "cuCtxSetCurrent"}) {
    for (unsigned nth = 1; nth <= 12; ++nth) {
      open(2_MiB);
      const GpuTable table = make(2);
      ASSERT_TRUE(stream_->synchronize());
      const std::byte* const before = pool_->take({8}).value();
      std::memset(const_cast<std::byte*>(before), 0, 8);
      for (const std::int64_t piece : {1, 0}) {
        const std::int64_t row = piece * 512;
        std::memcpy(const_cast<std::byte*>(before), &row, sizeof row);
        ASSERT_TRUE(device_->copy(stream_->handle(), numbers_->address(), address_of(before), {8}));
        ASSERT_TRUE(stream_->synchronize());
        control().fail(call, nth, 999);
        for (int again = 0; again < 3; ++again)
          tables_->looked_up({.table = table.address,
                              .rows = 1024,
                              .row_bytes = row_bytes,
                              .numbers = numbers_->address(),
                              .count = 1,
                              .number_bytes = 8},
                             stream_->handle());
        static_cast<void>(device_->synchronize());
        if (const auto done = tables_->between_steps(); !done) {
          ++errors;
          EXPECT_THAT(done.error().message, ::testing::HasSubstr("; ")) << call << ", call " << nth;
        }
        control().fail_none();
      }
      ASSERT_TRUE(device_->synchronize());
      ASSERT_TRUE(tables_->between_steps()) << call << ", call " << nth;
      ASSERT_LE(tables_->counters().device_bytes, (2_MiB).value) << call << ", call " << nth;
      expect_right(table, 2);
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << call << ", call " << nth;
      pool_->give_back(const_cast<std::byte*>(before), {8});
    }
  }
  std::printf("%d moves of pieces were refused with a sentence\n", errors);
  EXPECT_GT(errors, 10);
}

TEST_F(Tables, ABudgetThatHoldsNoPieceIsASentence) {
  const auto refused = GpuTables::make(device_, 1_MiB);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("give it 2.0 MiB (2097152 bytes) or more"));
}

}  // namespace
}  // namespace vedette::testing::tables_test
