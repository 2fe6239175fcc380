// The pages that kernels touch in managed memory, by CUPTI's records: the simulated device's pages fault as documented.
// Every access of the kernels is known. What CUPTI lacks, refuses or loses is a sentence.
#include "cuda/managed_tracker.h"

#include <gmock/gmock.h>

#include <optional>
#include <ostream>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::managed_tracker_test {
namespace {

using cuda::Address;
using cuda::DeviceRange;
using cuda::FaultRecords;
using cuda::ManagedTracker;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr cuda::CounterKind faults[] = {cuda::CounterKind::device_page_fault};
constexpr Bytes memory = 4_MiB;

struct Touch {  // of pages [first, first + count)
  std::size_t first = 0, count = 0;
  bool read = false, written = false;
  bool operator==(const Touch&) const = default;
};

void PrintTo(const Touch& touch, std::ostream* out) {
  *out << touch.count << " pages from " << touch.first << (touch.read ? ", read" : "")
       << (touch.written ? ", written" : "");
}

class ManagedPages : public SimulatedGpu {
 protected:
  void SetUp() override {
    SimulatedGpu::SetUp();
    device_ = open_device();
    auto records = FaultRecords::open(faults, SIMULATED_CUPTI);
    range_.emplace(DeviceRange::make(device_, {.bytes = memory, .managed = true}).value());
    stream_.emplace(cuda::Stream::create(device_).value());
    ManagedTracker::Memory tracked{.address = range_->address(), .bytes = memory, .address_of = {}};
    tracked.address_of = [this](const std::byte* name) { return address_of_name(name); };
    tracker_.emplace(device_, std::move(records).value(), std::move(tracked));
  }
  void TearDown() override {
    tracker_.reset();
    stream_.reset();
    range_.reset();
    device_.reset();
    SimulatedGpu::TearDown();
  }

  // Names lie elsewhere than the memory, as a session's do.
  static std::byte* name(std::size_t page) { return reinterpret_cast<std::byte*>(0x10000000 + page * page_size); }
  Address address_of_name(const std::byte* at) const { return range_->address() + static_cast<Address>(at - name(0)); }

  void touch(std::size_t first, std::size_t count, bool read, bool write) {
    auto* const at = reinterpret_cast<std::byte*>(range_->address() + first * page_size);
    control().launch(stream_->handle(), "touch", {{.at = at, .bytes = count * page_size, .write = write}}, [=] {
      auto* const bytes = static_cast<volatile std::byte*>(control().reach(at));
      for (std::size_t page = 0; page < count; ++page) {
        const std::byte found = read ? bytes[page * page_size] : std::byte{1};
        if (write) bytes[page * page_size] = found;
      }
    });
  }
  std::vector<Touch> collect(std::size_t first = 0, std::size_t count = memory.value / page_size) {
    const AddressRange range[] = {{name(first), count * page_size}};
    std::vector<TouchedRange> touched;
    tracker_->collect(range, touched).value();
    std::vector<Touch> found;
    for (const TouchedRange& each : touched)
      found.push_back({.first = static_cast<std::size_t>(each.pages.begin - name(0)) / page_size,
                       .count = each.pages.bytes / page_size,
                       .read = each.read,
                       .written = each.written});
    return found;
  }

  std::shared_ptr<cuda::Device> device_;
  std::optional<DeviceRange> range_;
  std::optional<cuda::Stream> stream_;
  std::optional<ManagedTracker> tracker_;
};

TEST_F(ManagedPages, AreToldReadAndWrittenApart) {
  tracker_->arm({}).value();
  touch(3, 2, true, false);
  touch(5, 4, false, true);
  touch(100, 1, true, true);  // it does not pass for one that is read alone
  EXPECT_THAT(collect(), ElementsAre(Touch{3, 2, true, false}, Touch{5, 4, false, true}, Touch{100, 1, true, true}));
  EXPECT_TRUE(collect().empty());
}

TEST_F(ManagedPages, AreSeenAgainOnceTheyAreArmedAndNotBefore) {
  touch(0, 8, true, true);
  tracker_->arm({}).value();
  EXPECT_TRUE(collect().empty()) << "that was before";
  touch(0, 1, false, true);
  EXPECT_THAT(collect(), ElementsAre(Touch{0, 1, false, true}));
  touch(0, 2, true, false);
  EXPECT_THAT(collect(), ElementsAre(Touch{1, 1, true, false})) << "page 0 is on the device";
  tracker_->arm({}).value();
  touch(0, 2, true, false);
  EXPECT_THAT(collect(), ElementsAre(Touch{0, 2, true, false})) << "a copy stayed on the device";
}

TEST_F(ManagedPages, AreLookedAtByNameAndOthersWait) {
  tracker_->arm({}).value();
  touch(10, 4, true, false);
  touch(20, 4, true, false);
  EXPECT_THAT(collect(12, 4), ElementsAre(Touch{12, 2, true, false}));
  EXPECT_THAT(collect(), ElementsAre(Touch{10, 2, true, false}, Touch{20, 4, true, false}));
}

TEST_F(ManagedPages, KeepTheirBytesOnTheirWay) {
  auto* const words = reinterpret_cast<volatile std::uint32_t*>(range_->address());
  for (std::size_t page = 0; page < 16; ++page) words[page * 1024] = static_cast<std::uint32_t>(page);
  tracker_->arm({}).value();
  std::uint32_t sum = 0;
  launch_read(stream_->handle(), range_->address(), 16 * 1024, &sum);
  stream_->synchronize().value();
  EXPECT_EQ(sum, 120u);
  launch_fill(stream_->handle(), range_->address(), 1024, 7);
  tracker_->arm({}).value();
  EXPECT_EQ(words[5], 7u);
  EXPECT_EQ(words[1024], 1u);
}

TEST_F(ManagedPages, OfAFlushThatIsRefusedAreAnErrorOnce) {
  tracker_->arm({}).value();
  control().fail("cuptiActivityFlushAll", 1, 1);
  std::vector<TouchedRange> touched;
  const AddressRange all[] = {{name(0), memory.value}};
  const auto refused = tracker_->collect(all, touched);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("CUPTI_ERROR_UNKNOWN (cuptiActivityFlushAll)"));
  touch(1, 1, true, false);
  EXPECT_THAT(collect(), ElementsAre(Touch{1, 1, true, false}));
}

// What is lost is told, and not taken for untouched.
class FewRecords : public ManagedPages {
 protected:
  simulated::Options options() const override { return {.memory = std::size_t{256} << 20, .fault_records = 4}; }
};

TEST_F(FewRecords, ThatAreLostAreAnErrorOnce) {
  tracker_->arm({}).value();
  touch(0, 7, true, false);
  std::vector<TouchedRange> touched;
  const AddressRange all[] = {{name(0), memory.value}};
  const auto lost = tracker_->collect(all, touched);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message,
            "CUPTI lost 3 records of page faults for want of room; profile a smaller model or batch");
  touch(10, 2, true, false);
  EXPECT_THAT(collect(), ElementsAre(Touch{10, 2, true, false}));
}

class Cupti : public SimulatedGpu {};

TEST_F(Cupti, ThatIsMissingOrLacksAFunctionIsASentence) {
  const auto missing = FaultRecords::open(faults, "libno-cupti-here.so.13");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().cause, Cause::unavailable);
  EXPECT_EQ(missing.error().message,
            "page faults of a GPU cannot be recorded: CUPTI of CUDA 13 (libno-cupti-here.so.13) is not there; install "
            "it (the wheel nvidia-cuda-cupti, or the toolkit) where the loader finds it");
  const auto other = FaultRecords::open(faults, SIMULATED_DRIVER);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr(" lacks cupti"));
}

TEST_F(Cupti, ThatAnotherProfilerHoldsIsASentenceAndTheNextTryWorks) {
  const auto device = open_device();
  control().fail("cuptiActivityEnable", 1, cuda::cupti_other_subscriber);
  const auto refused = FaultRecords::open(faults, SIMULATED_CUPTI);
  ASSERT_FALSE(refused);
  EXPECT_THAT(
      refused.error().message,
      HasSubstr("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (cuptiActivityEnable); another profiler holds"));
  const auto records = FaultRecords::open(faults, SIMULATED_CUPTI);
  ASSERT_TRUE(records) << records.error().message;
  const auto second = FaultRecords::open(faults, SIMULATED_CUPTI);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("by this process already"));
}

TEST_F(Cupti, OnADeviceWithoutManagedPagesIsASentence) {
  control().choose(simulated::Options{.memory = std::size_t{256} << 20, .managed = false});
  const auto works = ManagedTracker::works_on(*open_device());
  ASSERT_FALSE(works);
  EXPECT_THAT(works.error().message, HasSubstr("concurrentManagedAccess is 0"));
}

}  // namespace
}  // namespace vedette::testing::managed_tracker_test
