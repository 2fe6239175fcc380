// Every call of the driver and of CUPTI fails once at each of its positions in a program that uses all of src/cuda. The
// program gets an error with a sentence, or right bytes. Nothing is leaked, nothing hangs.
#include <gmock/gmock.h>

#include "cuda/managed_tracker.h"
#include "cuda/mixed_range.h"
#include "simulated_gpu/test_device.h"

namespace vedette::testing::failing_calls_test {
namespace {

using cuda::Device;
using cuda::DeviceRange;
using cuda::Event;
using cuda::FaultRecords;
using cuda::ManagedTracker;
using cuda::MixedRange;
using cuda::PinnedPool;
using cuda::Stream;

constexpr Bytes bytes = 64_KiB;

Result<void> round_trip(const std::shared_ptr<Device>& device, const DeviceRange& range, PinnedPool& pool) {
  auto stream = Stream::create(device);
  if (!stream) return stream.error();
  auto other = Stream::create(device);
  if (!other) return other.error();
  auto began = Event::create(device, Event::Timing::on), ended = Event::create(device, Event::Timing::on);
  if (!began) return began.error();
  if (!ended) return ended.error();
  auto there = pool.take(bytes), back = pool.take(bytes);
  if (!there) return there.error();
  if (!back) return back.error();
  std::memset(*there, 42, bytes.value);
  std::memset(*back, 0, bytes.value);
  // A failure in the middle leaves copies behind: the streams are waited for before the memory goes.
  const auto work = [&]() -> Result<void> {
    if (auto done = began->record(stream->handle()); !done) return done;
    if (auto done = device->fill(stream->handle(), range.address(), 7, bytes); !done) return done;
    if (auto done = device->copy(stream->handle(), range.address(), address_of(*there), bytes); !done) return done;
    if (auto done = ended->record(stream->handle()); !done) return done;
    if (auto done = ended->let_wait(other->handle()); !done) return done;
    if (auto done = device->copy(other->handle(), address_of(*back), range.address(), bytes); !done) return done;
    if (auto done = ended->synchronize(); !done) return done;
    if (auto passed = ended->passed(); !passed) return passed.error();
    if (auto took = ended->since(*began); !took) return took.error();
    return {};
  };
  const auto done = work();
  for (const auto* each : {&*stream, &*other}) {
    if (!each->synchronize()) static_cast<void>(each->synchronize());
  }
  if (!done) return done;
  EXPECT_EQ(std::memcmp(*there, *back, bytes.value), 0);
  pool.give_back(*there, bytes);
  pool.give_back(*back, bytes);
  return {};
}

// A piece becomes the device's and the host's again, with its bytes.
Result<void> move_a_piece(const std::shared_ptr<Device>& device, PinnedPool& pool) {
  auto range = MixedRange::make(device, 4_MiB, 2_MiB);
  if (!range) return range.error();
  const auto taken = pool.take(bytes);
  if (!taken) return taken.error();
  const cuda::Address row = range->address() + range->piece().value;  // of the second piece
  const auto and_wait = [&](Result<void> queued) {
    const auto waited = device->synchronize();
    if (!waited) static_cast<void>(device->synchronize());
    return queued ? waited : queued;
  };
  std::memset(*taken, 42, bytes.value);
  if (auto done = and_wait(device->copy(nullptr, row, address_of(*taken), bytes)); !done) return done;
  Result<void> moved;
  for (const auto kind : {MixedRange::Kind::device, MixedRange::Kind::host}) {
    if (moved) moved = range->move(1, kind);
  }
  std::memset(*taken, 0, bytes.value);  // also where a move was refused
  if (auto done = and_wait(device->copy(nullptr, address_of(*taken), row, bytes)); !done) return done;
  for (std::size_t i = 0; i < bytes.value; ++i) {
    if ((*taken)[i] != std::byte{42}) ADD_FAILURE() << "byte " << i << " was lost";
  }
  pool.give_back(*taken, bytes);
  return moved;
}

// A kernel writes managed memory, whose pages are told.
Result<void> watch_pages(const std::shared_ptr<Device>& device) {
  constexpr cuda::CounterKind faults[] = {cuda::CounterKind::device_page_fault};
  auto records = FaultRecords::open(faults, SIMULATED_CUPTI);
  if (!records) return records.error();
  if (auto works = ManagedTracker::works_on(*device); !works) return works;
  auto range = DeviceRange::make(device, {.bytes = bytes, .managed = true});
  if (!range) return range.error();
  auto stream = Stream::create(device);
  if (!stream) return stream.error();
  ManagedTracker tracker(device, std::move(*records),
                         {.address = range->address(), .bytes = bytes, .address_of = [](const std::byte* name) {
                            return address_of(name);
                          }});
  const AddressRange whole[] = {{reinterpret_cast<std::byte*>(range->address()), bytes.value}};
  std::vector<TouchedRange> touched;
  const auto work = [&]() -> Result<void> {
    if (auto armed = tracker.arm(whole); !armed) return armed;
    launch_fill(stream->handle(), range->address(), bytes.value / 4, 7);
    if (auto collected = tracker.collect(whole, touched); !collected) return collected;
    return tracker.disarm(whole);
  };
  const auto done = work();
  if (!stream->synchronize()) static_cast<void>(stream->synchronize());
  if (!done) return done;
  EXPECT_EQ(touched.size(), 1u);
  for (const TouchedRange& each : touched) EXPECT_EQ(each.pages.bytes, bytes.value);
  return {};
}

Result<void> use_everything() {
  auto driver = cuda::Driver::load(SIMULATED_DRIVER);
  if (!driver) return driver.error();
  auto device = Device::open(*driver, 0);
  if (!device) return device.error();
  EXPECT_FALSE((*driver)->check(cuda::error_invalid_value, "nothing"));
  static_cast<void>((*device)->name());
  static_cast<void>((*device)->numa_node());
  static_cast<void>((*device)->bus_id());
  if (auto memory = (*device)->memory(); !memory) return memory.error();
  auto range = DeviceRange::make(*device, {.bytes = 4_MiB, .most = 8_MiB, .handle = 2_MiB});
  if (!range) return range.error();
  if (auto grown = range->resize(8_MiB); !grown) return grown;
  PinnedPool pool(*device, {.piece = 1_MiB});
  if (auto done = round_trip(*device, *range, pool); !done) return done;
  if (auto done = move_a_piece(*device, pool); !done) return done;
  if (auto done = watch_pages(*device); !done) return done;
  PinnedPool of_driver(*device, {.piece = 1_MiB, .of_driver = true});
  if (auto slot = of_driver.take(1_MiB); !slot) return slot.error();
  return range->resize(2_MiB);
}

// These are called when something is given back, where an error has no receiver and the memory goes with the process.
const std::set<std::string> giving_back = {
    "cuStreamDestroy_v2", "cuEventDestroy_v2",   "cuMemUnmap",      "cuMemRelease",    "cuMemAddressFree",
    "cuMemFreeHost",      "cuMemHostUnregister", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuDevicePrimaryCtxRelease_v2",
    "cuMemFree_v2",       "cuptiActivityDisable"};

class FailingCalls : public SimulatedGpu {
 protected:
  // The calls that one run makes, by name.
  static std::map<std::string, unsigned> calls_of_a_run() {
    const auto before = control().calls();
    EXPECT_TRUE(use_everything());
    auto made = control().calls();
    for (auto& [name, count] : made) {
      if (const auto found = before.find(name); found != before.end()) count -= found->second;
    }
    std::erase_if(made, [](const auto& each) { return each.second == 0; });
    return made;
  }
};

TEST_F(FailingCalls, AProgramWithoutFailuresUsesAllThatIsDeclared) {
  const auto made = calls_of_a_run();
#define CALL(member, header_name, exported_name, ...) EXPECT_TRUE(made.contains(#exported_name)) << #exported_name;
#include "cuda/calls.def"
#include "cuda/managed_calls.def"
#undef CALL
  for (const char* const name : {"cuptiActivityRegisterCallbacks", "cuptiActivityConfigureUnifiedMemoryCounter",
                                 "cuptiActivityEnable", "cuptiActivityFlushAll", "cuptiActivityGetNumDroppedRecords"})
    EXPECT_TRUE(made.contains(name)) << name;
}

TEST_F(FailingCalls, EachAtEachOfItsPositionsIsAnErrorAndLeaksNothing) {
  const auto made = calls_of_a_run();
  std::size_t errors = 0;
  for (const auto& [name, count] : made) {
    if (giving_back.contains(name)) continue;
    for (unsigned nth = 1; nth <= count; ++nth) {
      control().fail(name, nth, 2);
      const auto result = use_everything();
      control().fail_none();
      if (!result) {
        ++errors;
        EXPECT_THAT(result.error().message, ::testing::HasSubstr("; ")) << name << " says not what to do";
      }
      ASSERT_THAT(control().leaks(), ::testing::IsEmpty()) << name << ", call " << nth;
      ASSERT_THAT(control().races(), ::testing::IsEmpty()) << name << ", call " << nth;
    }
  }
  EXPECT_GT(errors, 30u);
}

TEST_F(FailingCalls, AContextThatIsRefusedIsAnErrorOrNotNeeded) {
  const unsigned count = calls_of_a_run().at("cuCtxSetCurrent");
  for (unsigned nth = 1; nth <= count; ++nth) {
    control().fail("cuCtxSetCurrent", nth, 999);
    const auto result = use_everything();
    control().fail_none();
    EXPECT_EQ(result.ok(), nth > 1) << nth << ": only the first is open()'s";
    ASSERT_THAT(control().leaks(), ::testing::IsEmpty()) << nth;
  }
}

// Copies then find memory of one owner on both sides, and the host reads what kernels wrote.
TEST_F(FailingCalls, TheHostReachesTheHostsPiecesOfATableWhereTheDriverAllowsIt) {
  const auto device = open_device();
  const auto stream = cuda::Stream::create(device).value();
  for (const bool allowed : {true, false}) {
    if (!allowed) control().fail("cuMemSetAccess", 2, cuda::error_not_supported);  // of the first piece, to the host
    auto range = MixedRange::make(device, 4_MiB, 2_MiB).value();
    control().fail_none();
    const auto* const word = reinterpret_cast<const volatile std::uint32_t*>(range.address());
    launch_fill(stream.handle(), range.address(), 16, 7);
    stream.synchronize().value();
    if (allowed) {
      EXPECT_EQ(*word, 7u);
    }
    range.move(0, MixedRange::Kind::device).value();
    range.move(0, MixedRange::Kind::host).value();
    EXPECT_EQ(*word, 7u) << "moved there and back";
  }
}

TEST_F(FailingCalls, NoDriverIsASentence) {
  const auto refused = cuda::Driver::load("libno_such_driver.so.1");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::unavailable);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("install NVIDIA's driver, or use fast = \"dram\""));
  const auto other = cuda::Driver::load("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, ::testing::HasSubstr("install a driver for CUDA 12 or newer"));
}

}  // namespace
}  // namespace vedette::testing::failing_calls_test
