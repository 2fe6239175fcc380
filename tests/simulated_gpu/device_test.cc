// The simulated GPU itself: copies, order, throttled engines, limits, and the sentences that misuse ends with.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <thread>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::device_test {
namespace {

using cuda::Address;
using cuda::DeviceRange;
using cuda::Event;
using cuda::PinnedPool;
using cuda::Stream;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

constexpr std::size_t words = 1024;

double ms_of(const auto& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

struct Bench {
  std::shared_ptr<cuda::Device> device = open_device();
  DeviceRange range = DeviceRange::make(device, {.bytes = 8_MiB, .handle = 2_MiB}).value();
  Stream stream = Stream::create(device).value();
  Stream other = Stream::create(device).value();
  Event event = Event::create(device).value();
};

TEST_F(SimulatedGpu, BytesComeBackFromTheDeviceAsTheyWent) {
  Bench bench;
  PinnedPool pool(bench.device, {.piece = 1_MiB});
  auto* const there = reinterpret_cast<std::uint32_t*>(pool.take({words * 4}).value());
  auto* const back = reinterpret_cast<std::uint32_t*>(pool.take({words * 4}).value());
  for (std::uint32_t i = 0; i < words; ++i) there[i] = i * 7;
  const Address at = bench.range.address() + 4096;
  bench.device->copy(bench.stream.handle(), at, address_of(there), {words * 4}).value();
  bench.device->copy(bench.stream.handle(), address_of(back), at, {words * 4}).value();
  bench.stream.synchronize().value();
  EXPECT_EQ(std::memcmp(there, back, words * 4), 0);
}

TEST_F(SimulatedGpu, AStreamThatWaitsForAnEventRunsBehindIt) {
  Bench bench;
  for (std::uint32_t round = 1; round < 50; ++round) {
    std::uint32_t sum = 0;
    launch_fill(bench.stream.handle(), bench.range.address(), words, round);
    bench.event.record(bench.stream.handle()).value();
    bench.event.let_wait(bench.other.handle()).value();
    launch_read(bench.other.handle(), bench.range.address(), words, &sum);
    bench.event.record(bench.other.handle()).value();
    bench.event.let_wait(bench.stream.handle()).value();
    bench.event.synchronize().value();
    ASSERT_EQ(sum, round * words);
  }
  EXPECT_TRUE(bench.event.passed().value());
}

// As CUDA's legacy default stream does. Streams of a test are not blocking, but for these.
TEST_F(SimulatedGpu, ABlockingStreamAndTheDefaultOneWaitForEachOther) {
  Bench bench;
  void* const library = ::dlopen(SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
  const auto create = reinterpret_cast<int (*)(cuda::StreamHandle*, unsigned)>(::dlsym(library, "cuStreamCreate"));
  const auto destroy = reinterpret_cast<int (*)(cuda::StreamHandle)>(::dlsym(library, "cuStreamDestroy_v2"));
  cuda::StreamHandle blocking = nullptr;
  ASSERT_EQ(create(&blocking, 0), 0);
  for (std::uint32_t round = 1; round < 20; ++round) {
    std::uint32_t sum = 0;
    launch_fill(nullptr, bench.range.address(), words, round);
    launch_fill(blocking, bench.range.address(), words, round + 1);
    launch_read(nullptr, bench.range.address(), words, &sum);
    bench.event.record(nullptr).value();
    bench.event.synchronize().value();
    ASSERT_EQ(sum, (round + 1) * words);
  }
  EXPECT_EQ(control().races(), std::vector<std::string>());
  launch_fill(nullptr, bench.range.address(), words, 1);
  launch_fill(bench.other.handle(), bench.range.address(), words, 1);
  EXPECT_EQ(control().races().size(), 1u) << "a stream that is not blocking waits for nothing";
  control().forget_races();
  bench.other.synchronize().value();
  bench.event.record(nullptr).value();
  bench.event.synchronize().value();
  EXPECT_EQ(destroy(blocking), 0);
}

// What is queued on a stream is done though the stream is destroyed meanwhile.
TEST_F(SimulatedGpu, AStreamThatIsDestroyedDoesItsWorkAndLeavesNoThread) {
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto device = open_device();
  const auto before = threads();
  constexpr int streams = 200;
  std::atomic<int> done = 0;
  for (int i = 0; i < streams; ++i) {
    const auto stream = cuda::Stream::create(device).value();
    control().launch(stream.handle(), "work", {}, [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++done;
    });
  }
  for (int i = 0; i < 2000 && (done < streams || threads() > before); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(done, streams);
  EXPECT_LE(threads(), before);
}

TEST_F(SimulatedGpu, AWaitForAStreamIsForWhatWasQueuedBeforeIt) {
  Bench bench;
  std::atomic<bool> may_end = false, ended = false;
  const auto queue = [&](auto kernel) { control().launch(bench.stream.handle(), "work", {}, kernel); };
  queue([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
  std::thread later([&] {  // while the host waits
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    queue([&] {
      for (int i = 0; i < 2000 && !may_end; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = true;
    });
  });
  bench.stream.synchronize().value();
  EXPECT_FALSE(ended) << "the wait was for what was queued after it, too";
  may_end = true;
  later.join();
  bench.stream.synchronize().value();
  EXPECT_TRUE(ended);
}

TEST_F(SimulatedGpu, ACopyTakesTheTimeOfItsLinkAndEnginesOfTwoDirectionsRunBesideEachOther) {
  Bench bench;
  PinnedPool pool(bench.device, {});
  std::byte* const first = pool.take(4_MiB).value();
  std::byte* const second = pool.take(4_MiB).value();
  const auto both_ways = [&] {
    bench.device->copy(bench.stream.handle(), bench.range.address(), address_of(first), 4_MiB).value();
    bench.device->copy(bench.other.handle(), address_of(second), bench.range.address() + (4 << 20), 4_MiB).value();
    bench.stream.synchronize().value();
    bench.other.synchronize().value();
  };
  both_ways();
  const double ms = static_cast<double>((4_MiB).value) / 0.1e9 * 1e3;  // 42 ms at 0.1 GB/s
  control().choose({.gbs = 0.1});
  const double two_engines = ms_of(both_ways);
  control().choose({.gbs = 0.1, .one_engine = true});
  const double one_engine = ms_of(both_ways);
  control().choose({.latency_us = 5000});
  EXPECT_GE(ms_of(both_ways), 5.0);
  EXPECT_GE(two_engines, ms);
  EXPECT_GE(one_engine, 2 * ms);
  EXPECT_LT(two_engines, one_engine);
}

TEST_F(SimulatedGpu, CopiesRunNotBesideKernelsWhereTheyWaitForThem) {
  Bench bench;
  PinnedPool pool(bench.device, {.piece = 1_MiB});
  std::byte* const slot = pool.take(4_KiB).value();
  control().choose({.copies_wait = true});
  std::atomic<bool> running = false, seen = false;
  control().launch(bench.stream.handle(), "long", {}, [&] {
    running = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    running = false;
  });
  while (!running) std::this_thread::yield();
  bench.device->copy(bench.other.handle(), bench.range.address(), address_of(slot), 4_KiB).value();
  bench.other.synchronize().value();
  seen = running.load();
  EXPECT_FALSE(seen);
  bench.stream.synchronize().value();
}

TEST_F(SimulatedGpu, MoreMemoryThanThereIsIsRefusedAndLeavesNothingBehind) {
  Bench bench;
  const auto before = bench.device->memory().value();
  const auto refused = DeviceRange::make(bench.device, {.bytes = 512_MiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().cause, Cause::out_of_memory);
  EXPECT_THAT(refused.error().message,
              HasSubstr("CUDA_ERROR_OUT_OF_MEMORY; free memory of the GPU, or give a smaller"));
  EXPECT_EQ(bench.device->memory().value().free, before.free);
}

TEST_F(SimulatedGpu, AThreadWithoutAContextIsRefused) {
  Bench bench;
  std::thread([&] {
    const auto refused = bench.event.record(bench.stream.handle());
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("call Device::make_current() in this thread first"));
    bench.device->make_current().value();
    EXPECT_TRUE(bench.event.record(bench.stream.handle()));
  }).join();
  bench.stream.synchronize().value();
}

using SimulatedGpuDeathTest = SimulatedGpu;

// --- graphs ----------------------------------------------------------------------------------------------------------

struct Graphs {  // the driver's calls; a graph is a handle
  template <class... Parameters>
  static int call(const char* name, Parameters... parameters) {
    static void* const library = ::dlopen(SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<int (*)(Parameters...)>(::dlsym(library, name))(parameters...);
  }
  static int begin(const Stream& on, int mode = 0) { return call("cuStreamBeginCapture_v2", on.handle(), mode); }
  static int end(const Stream& on, void** graph) { return call("cuStreamEndCapture", on.handle(), graph); }
  static void replay(void* graph, const Stream& on) { ASSERT_EQ(call("cuGraphLaunch", graph, on.handle()), 0); }
  static void destroy(void* graph) { ASSERT_EQ(call("cuGraphDestroy", graph), 0); }
};

// Adds one to each word.
void launch_count(const Stream& on, Address to) {
  void* const at = reinterpret_cast<void*>(to);
  control().launch(on.handle(), "count", {{.at = at, .bytes = words * 4, .write = true}}, [=]() VEDETTE_ON_THE_DEVICE {
    auto* const first = static_cast<std::uint32_t*>(control().reach(at));
    for (std::size_t i = 0; i < words; ++i) ++first[i];
  });
}

// The other stream counts between two counts of the first one; not `ordered`: beside the second.
void* capture_two_streams(const Bench& bench, bool ordered = true, bool joined = true) {
  EXPECT_EQ(Graphs::begin(bench.stream), 0);
  launch_count(bench.stream, bench.range.address());
  bench.event.record(bench.stream.handle()).value();
  bench.event.let_wait(bench.other.handle()).value();
  if (!ordered) launch_count(bench.stream, bench.range.address());
  launch_count(bench.other, bench.range.address());
  bench.event.record(bench.other.handle()).value();
  if (joined) bench.event.let_wait(bench.stream.handle()).value();
  if (ordered) launch_count(bench.stream, bench.range.address());
  void* graph = nullptr;
  EXPECT_EQ(Graphs::end(bench.stream, &graph), joined ? 0 : 904) << "CUDA_ERROR_STREAM_CAPTURE_UNJOINED";
  return graph;
}

TEST_F(SimulatedGpu, AGraphRunsWhenItIsReplayedInTheOrderOfItsEvents) {
  Bench bench;
  launch_fill(bench.stream.handle(), bench.range.address(), words, 100);
  void* const graph = capture_two_streams(bench);
  std::uint32_t sum = 0;
  launch_read(bench.stream.handle(), bench.range.address(), words, &sum);
  bench.stream.synchronize().value();
  EXPECT_EQ(sum, 100 * words) << "what is captured does not run";
  for (std::uint32_t replays = 1; replays < 20; ++replays) {
    Graphs::replay(graph, bench.stream);
    launch_read(bench.stream.handle(), bench.range.address(), words, &sum);
    bench.stream.synchronize().value();
    ASSERT_EQ(sum, (100 + 3 * replays) * words);
  }
  Graphs::destroy(graph);
}

TEST_F(SimulatedGpu, ReplaysOfAGraphAreBehindOneAnotherOnWhateverStreams) {
  Bench bench;
  launch_fill(bench.stream.handle(), bench.range.address(), words, 0);
  bench.stream.synchronize().value();
  void* const graph = capture_two_streams(bench);
  for (int i = 0; i < 20; ++i) Graphs::replay(graph, i % 2 == 0 ? bench.stream : bench.other);
  std::uint32_t sum = 0;
  launch_read(bench.other.handle(), bench.range.address(), words, &sum);
  bench.other.synchronize().value();
  bench.stream.synchronize().value();
  EXPECT_EQ(sum, 60 * words);
  Graphs::destroy(graph);
}

TEST_F(SimulatedGpu, ARaceInsideOfAGraphIsFoundInEachReplay) {
  Bench bench;
  launch_fill(bench.stream.handle(), bench.range.address(), words, 0);
  void* const graph = capture_two_streams(bench, /*ordered=*/false);
  EXPECT_TRUE(control().races().empty()) << "nothing has run";
  for (std::size_t replays = 1; replays < 4; ++replays) {
    Graphs::replay(graph, bench.stream);
    EXPECT_EQ(control().races().size(), replays);
  }
  bench.stream.synchronize().value();
  Graphs::destroy(graph);
  EXPECT_THAT(control().races().back(), HasSubstr("count on stream"));
  control().forget_races();
}

TEST_F(SimulatedGpu, ARaceOfAGraphWithWorkBesideItIsFound) {
  Bench bench;
  launch_fill(bench.stream.handle(), bench.range.address(), words, 0);
  bench.stream.synchronize().value();
  void* const graph = capture_two_streams(bench);
  Graphs::replay(graph, bench.stream);
  EXPECT_TRUE(control().races().empty());
  launch_count(bench.other, bench.range.address());
  EXPECT_EQ(control().races().size(), 1u);
  bench.stream.synchronize().value();
  bench.other.synchronize().value();
  Graphs::destroy(graph);
  control().forget_races();
}

TEST_F(SimulatedGpu, AStreamThatIsNotJoinedBreaksTheCapture) {
  Bench bench;
  EXPECT_EQ(capture_two_streams(bench, true, /*joined=*/false), nullptr);
}

TEST_F(SimulatedGpu, ACaptureIsSpoiltByAWaitByAnEventFromOutsideAndByAMistakenCall) {
  Bench bench;
  bench.event.record(bench.other.handle()).value();
  bench.other.synchronize().value();
  const std::vector<std::function<bool()>> refused = {
      [&] { return bench.stream.synchronize().ok(); }, [&] { return bench.event.let_wait(bench.stream.handle()).ok(); },
      [&] { return Graphs::call("cuEventQuery", bench.event.handle()) == 0; },
      [&] { return Graphs::call("cuCtxSynchronize") == 0; }};
  for (const auto& call : refused) {
    ASSERT_EQ(Graphs::begin(bench.stream), 0);
    EXPECT_FALSE(call());
    void* graph = nullptr;
    EXPECT_EQ(Graphs::end(bench.stream, &graph), 901) << "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    EXPECT_EQ(graph, nullptr);
    EXPECT_TRUE(call()) << "afterwards it is allowed";
  }
}

TEST_F(SimulatedGpu, OurOwnWaitsAndPinnedMemoryLeaveACaptureAlone) {
  Bench bench;
  ASSERT_EQ(Graphs::begin(bench.stream), 0);
  launch_fill(bench.other.handle(), bench.range.address(), words, 1);
  bench.event.record(bench.other.handle()).value();
  EXPECT_TRUE(bench.event.synchronize().ok());
  EXPECT_TRUE(bench.event.passed().value());
  EXPECT_TRUE(bench.other.synchronize().ok());
  EXPECT_TRUE(PinnedPool(bench.device, {.piece = 1_MiB}).take(4_KiB).ok());
  void* graph = nullptr;
  EXPECT_EQ(Graphs::end(bench.stream, &graph), 0);
  Graphs::destroy(graph);
}

TEST_F(SimulatedGpuDeathTest, HostCodeThatTouchesADeviceAddressEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        *reinterpret_cast<volatile int*>(bench.range.address()) = 1;
      },
      ExitedWithCode(70), "host code touches the device address .* copy the memory to the host first");
}

TEST_F(SimulatedGpuDeathTest, AKernelThatTouchesWhatIsNotMappedEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        const Address freed = [&] { return DeviceRange::make(bench.device, {.bytes = 2_MiB}).value().address(); }();
        launch_fill(bench.stream.handle(), freed, words, 1);
        bench.stream.synchronize().value();
      },
      ExitedWithCode(70), "CUDA_ERROR_ILLEGAL_ADDRESS: fill touches chunk .* which has no memory");
}

void copy_twice_to_one_byte() {
  Bench bench;
  PinnedPool pool(bench.device, {.piece = 1_MiB});
  const Address host = address_of(pool.take(8_KiB).value()), at = bench.range.address();
  const cuda::Copy copies[] = {{.to = at, .from = host, .bytes = 4_KiB},
                               {.to = at + 4095, .from = host + 4096, .bytes = 4_KiB}};
  bench.device->copy_together(bench.stream.handle(), copies).value();
}

TEST_F(SimulatedGpuDeathTest, CopiesOfOneCallThatOverlapEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(copy_twice_to_one_byte(), ExitedWithCode(70),
              "two copies of one call of cuMemcpyBatchAsync overlap, which nothing orders");
}

// As oneDNN's cache: a kernel's first run makes it.
struct Cache {
  ~Cache() { there = false; }
  std::atomic<bool> there = true;
};

TEST_F(SimulatedGpuDeathTest, KernelsThatAreQueuedAtTheEndRunBeforeTheirGlobalsAreDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        const auto queue = [&](int ms) {
          control().launch(bench.stream.handle(), "cached", {}, [ms] {
            static Cache cache;
            std::this_thread::sleep_for(std::chrono::milliseconds(ms));
            if (!cache.there) std::_Exit(3);
          });
        };
        queue(0);
        bench.stream.synchronize().value();
        queue(100);
        std::exit(0);
      },
      ExitedWithCode(0), "");
}

TEST_F(SimulatedGpuDeathTest, UnmappingBesideAKernelThatUsesTheMemoryEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        auto range = std::make_unique<DeviceRange>(DeviceRange::make(bench.device, {.bytes = 2_MiB}).value());
        launch_fill(bench.stream.handle(), range->address(), words, 1);
        range.reset();
      },
      ExitedWithCode(70), "cuMemUnmap: fill on stream .* may still write there; wait for an event");
}

TEST_F(SimulatedGpuDeathTest, UnmappingWaitsForTheDeviceWhereItIsAskedTo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  control().choose({.unmap_waits = true});
  Bench bench;
  auto range = std::make_unique<DeviceRange>(DeviceRange::make(bench.device, {.bytes = 2_MiB}).value());
  launch_fill(bench.stream.handle(), range->address(), words, 1);
  range.reset();
}

TEST_F(SimulatedGpuDeathTest, UnregisteringHostMemoryBesideACopyEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        auto pool = std::make_unique<PinnedPool>(bench.device, PinnedPool::Options{.piece = 1_MiB});
        std::byte* const slot = pool->take(4_KiB).value();
        bench.device->copy(bench.stream.handle(), address_of(slot), bench.range.address(), 4_KiB).value();
        pool.reset();
      },
      ExitedWithCode(70), "cuMemHostUnregister: copy on stream .* may still write there");
}

TEST_F(SimulatedGpuDeathTest, AStreamThatWasDestroyedEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Bench bench;
        const cuda::StreamHandle gone = [&] { return Stream::create(bench.device).value().handle(); }();
        static_cast<void>(bench.event.record(gone));
      },
      ExitedWithCode(70), "a stream is used that was destroyed or never created");
}

TEST_F(SimulatedGpuDeathTest, AWordOfSimulatedGpuThatIsNotKnownEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SIMULATED_GPU", "memory=3", 1);
        const auto driver = cuda::Driver::load(SIMULATED_OTHER_DRIVER);
      },
      ExitedWithCode(70), "unknown word 'memory=3'");
}

}  // namespace
}  // namespace vedette::testing::device_test
