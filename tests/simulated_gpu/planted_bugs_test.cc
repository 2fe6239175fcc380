// The mistakes that a tier of GPU memory can make with events, each planted: the detector finds it whatever the timing
// is, and is silent where the mistake is put right.
//
// The program is the tier's in small. A tensor in place A leaves by the out stream to a pinned slot, another comes into
// the place by the in stream, and kernels run on the compute stream.
#include <gmock/gmock.h>

#include <optional>

#include "simulated_gpu/test_device.h"

namespace vedette::testing::planted_bugs_test {
namespace {

using cuda::Address;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::size_t words = 4096;
constexpr Bytes bytes = {words * 4};

// One step of such a tier, with one line left out: each field is a bug.
struct Bugs {
  bool evicts_before_the_last_use = false;          // out does not wait for compute
  bool fetches_into_a_place_still_leaving = false;  // in does not wait for out
  bool fetches_into_a_place_still_used = false;     // in does not wait for compute, though nothing was copied out
  bool uses_before_the_fetch = false;               // compute does not wait for in
  bool births_where_a_copy_runs = false;            // compute does not wait for out before it writes the place
  bool fetches_a_slot_still_filling = false;        // in does not wait for out, of the same tensor
  bool reuses_the_slot_of_a_fetch = false;          // out writes a slot that in still reads
  bool waits_for_the_wrong_record = false;          // compute waits for the event before it is recorded
  bool frees_without_record_stream = false;  // another stream of the program still reads what compute writes next
  bool keeps_a_stale_pointer = false;        // a kernel writes the place that its tensor has left
};

class Tier {
 public:
  void step(const Bugs& bug) {
    launch_fill(compute_.handle(), place_a_, words, 1);
    evict(bug);
    fetch(bug);
    if (bug.births_where_a_copy_runs) birth_beside_copy();
    if (bug.reuses_the_slot_of_a_fetch) evict_into_a_slot_that_is_read();
    if (bug.keeps_a_stale_pointer) launch_fill(other_.handle(), place_a_, words, 9);
    second_stream(bug);
    compute_.synchronize().value();
    in_.synchronize().value();
    out_.synchronize().value();
    other_.synchronize().value();
  }

 private:
  void order(const cuda::Stream& after, const cuda::Stream& first) {
    event_.record(first.handle()).value();
    event_.let_wait(after.handle()).value();
  }
  void evict(const Bugs& bug) {
    if (!bug.evicts_before_the_last_use) order(out_, compute_);
    device_->copy(out_.handle(), address_of(slot_a_), place_a_, bytes).value();
  }
  void fetch(const Bugs& bug) {
    if (bug.fetches_a_slot_still_filling) {
      device_->copy(in_.handle(), place_b_, address_of(slot_a_), bytes).value();
      order(in_, out_);
      order(compute_, in_);
    }
    if (!bug.fetches_into_a_place_still_leaving) order(in_, out_);
    if (bug.fetches_into_a_place_still_used) launch_read(compute_.handle(), place_a_, words, &sum_);
    device_->copy(in_.handle(), place_a_, address_of(slot_b_), bytes).value();
    if (bug.waits_for_the_wrong_record) {
      event_.let_wait(compute_.handle()).value();
      event_.record(in_.handle()).value();
    } else if (!bug.uses_before_the_fetch) {
      order(compute_, in_);
    }
    launch_read(compute_.handle(), place_a_, words, &sum_);
  }
  void birth_beside_copy() {
    order(out_, compute_);
    device_->copy(out_.handle(), address_of(slot_a_), place_a_, bytes).value();
    launch_fill(compute_.handle(), place_a_, words, 2);
  }
  void evict_into_a_slot_that_is_read() {
    order(in_, compute_);
    device_->copy(in_.handle(), place_b_, address_of(slot_b_), bytes).value();
    device_->copy(out_.handle(), address_of(slot_b_), place_c_, bytes).value();
    order(compute_, in_);
  }
  void second_stream(const Bugs& bug) {
    launch_fill(compute_.handle(), place_c_, words, 3);
    order(other_, compute_);
    launch_read(other_.handle(), place_c_, words, &sum_);
    if (!bug.frees_without_record_stream) order(compute_, other_);
    launch_fill(compute_.handle(), place_c_, words, 4);
  }

  std::shared_ptr<cuda::Device> device_ = open_device();
  cuda::DeviceRange range_ = cuda::DeviceRange::make(device_, {.bytes = 2_MiB}).value();
  cuda::PinnedPool pool_{device_, {.piece = 1_MiB}};
  cuda::Stream compute_ = cuda::Stream::create(device_).value(), in_ = cuda::Stream::create(device_).value(),
               out_ = cuda::Stream::create(device_).value(), other_ = cuda::Stream::create(device_).value();
  cuda::Event event_ = cuda::Event::create(device_).value();
  const Address place_a_ = range_.address(), place_b_ = place_a_ + bytes.value, place_c_ = place_b_ + bytes.value;
  std::byte* const slot_a_ = pool_.take(bytes).value();
  std::byte* const slot_b_ = pool_.take(bytes).value();
  std::uint32_t sum_ = 0;
};

class PlantedBugs : public SimulatedGpu {
 protected:
  void TearDown() override {
    control().forget_races();
    SimulatedGpu::TearDown();
  }
  static std::vector<std::string> races_of(const Bugs& bug) {
    {
      Tier tier;
      tier.step(bug);
      tier.step({});  // what the first step left behind is no race of the second
    }
    auto found = control().races();
    control().forget_races();
    return found;
  }
};

TEST_F(PlantedBugs, NoneIsReportedWhereThereIsNone) {
  for (int round = 0; round < 20; ++round) ASSERT_THAT(races_of({}), SizeIs(0));
}

TEST_F(PlantedBugs, EachIsFoundWhateverTheTimingIs) {
  const std::pair<Bugs, const char*> planted[] = {
      {{.evicts_before_the_last_use = true}, "copy on stream"},
      {{.fetches_into_a_place_still_leaving = true}, "copy on stream"},
      {{.fetches_into_a_place_still_used = true}, "read on stream"},
      {{.uses_before_the_fetch = true}, "read on stream"},
      {{.births_where_a_copy_runs = true}, "fill on stream"},
      {{.fetches_a_slot_still_filling = true}, "copy on stream"},
      {{.reuses_the_slot_of_a_fetch = true}, "copy on stream"},
      {{.waits_for_the_wrong_record = true}, "read on stream"},
      {{.frees_without_record_stream = true}, "read on stream"},
      {{.keeps_a_stale_pointer = true}, "fill on stream"},
  };
  std::size_t number = 0;
  for (const auto& [bug, words_of_the_sentence] : planted) {
    for (int round = 0; round < 5; ++round) {
      const auto races = races_of(bug);
      EXPECT_THAT(races, ::testing::Contains(HasSubstr(words_of_the_sentence))) << "planted bug " << number;
      EXPECT_THAT(races, ::testing::Contains(HasSubstr("nothing orders the two; record an event"))) << number;
    }
    ++number;
  }
}

}  // namespace
}  // namespace vedette::testing::planted_bugs_test
