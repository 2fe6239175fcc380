// Point 1: can a chunk get another frame between two kernels that are ordered by events only, with no wait for the
// whole device?
//
// Kernel 1 writes 1 into the chunk, the frame is exchanged, kernel 2 writes 2; meanwhile a third kernel walks through
// other chunks of the same range. Right is: frame 1 holds ones, frame 2 holds twos, and the third kernel runs on. Two
// ways:
//   waited: the host waits for kernel 1's event, exchanges the frame and launches kernel 2;
//   queued: both kernels are in the stream, kernel 2 behind a wait for a word that the host sets once the frame is
//   exchanged. If
//           unmapping waits for the device this could never end, so another thread sets the word after `patience`.
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "gpu_probe/device.h"
#include "gpu_probe/groups.h"

namespace vedette::gpu {
namespace {

constexpr std::size_t walked_bytes = 4 * mebibyte;
constexpr auto patience = std::chrono::milliseconds(2000);
constexpr double busy_ms = 10000;  // longer than any exchange: who waits for its end has waited for the device

enum class Outcome { right, wrong_bytes, waited };

class Scene {
 public:
  Scene(const Gpu& gpu, std::size_t chunk_bytes)
      : gpu_(gpu),
        chunk_bytes_(chunk_bytes),
        range_(gpu, walked_bytes + 2 * chunk_bytes),
        walked_frame_(gpu, walked_bytes),
        first_(gpu, chunk_bytes),
        second_(gpu, chunk_bytes),
        walked_(gpu, range_.at(0), walked_frame_),
        stream_(gpu),
        done_(gpu) {}

  // Exchanges the frame of the mapped chunk; microseconds of the host.
  double exchange() {
    const double begin = now_us();
    mapped_->unmap();
    mapped_.emplace(gpu_, chunk(), second_);
    return now_us() - begin;
  }

  Outcome waited(Cell& cell, double limit_ms) {
    mapped_.emplace(gpu_, chunk(), first_);
    std::optional<Busy> busy(std::in_place, gpu_, limit_ms, range_.at(0), walked_bytes);
    launch(gpu_, gpu_.kernels.write, grid_, stream_, chunk(), words(), std::uint32_t{1});
    done_.record(stream_);
    done_.wait();
    cell.sample("exchange", exchange());
    const bool ran_on = busy->running();
    launch(gpu_, gpu_.kernels.write, grid_, stream_, chunk(), words(), std::uint32_t{2});
    busy.reset();
    return finish(ran_on);
  }

  Outcome queued(Cell& cell, double limit_ms) {
    mapped_.emplace(gpu_, chunk(), first_);
    gpu_.words()[Word::gate] = 0;
    std::optional<Busy> busy(std::in_place, gpu_, limit_ms, range_.at(0), walked_bytes);
    launch(gpu_, gpu_.kernels.write, grid_, stream_, chunk(), words(), std::uint32_t{1});
    done_.record(stream_);
    gpu_.cuda.stream_wait_value(stream_.get(), gpu_.word_address(Word::gate), 1, stream_wait_value_at_least);
    launch(gpu_, gpu_.kernels.write, grid_, stream_, chunk(), words(), std::uint32_t{2});
    while (!done_.done()) std::this_thread::yield();
    std::atomic<bool> impatient{false};  // relaxed: joining the thread orders it
    double took_us = 0;
    bool ran_on = false;
    {
      const std::jthread helper([&](const std::stop_token& stop) {
        const auto end = std::chrono::steady_clock::now() + patience;
        while (!stop.stop_requested() && std::chrono::steady_clock::now() < end) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        impatient.store(!stop.stop_requested(), std::memory_order_relaxed);
        gpu_.words()[Word::gate] = 1;  // opens in any case, also when the exchange throws
        if (!impatient.load(std::memory_order_relaxed)) return;
        try {
          gpu_.make_current();
          busy->ask_to_stop();
        } catch (const Refused&) {  // it ends by its time
        }
      });
      took_us = exchange();
      ran_on = busy->running();
    }
    cell.sample("exchange", took_us);
    busy.reset();
    return finish(ran_on && !impatient.load(std::memory_order_relaxed));
  }

 private:
  Address chunk() const { return range_.at(walked_bytes); }
  std::uint64_t words() const { return chunk_bytes_ / 16; }
  Address alias() const { return range_.at(walked_bytes + chunk_bytes_); }

  bool holds(Address at, std::uint32_t value) {
    gpu_.words()[Word::wrong] = 0;
    launch(gpu_, gpu_.kernels.check, grid_, stream_, at, words(), value, gpu_.word_address(Word::wrong));
    stream_.wait();
    return gpu_.words()[Word::wrong] == 0;
  }

  Outcome finish(bool ran_on) {
    stream_.wait();
    const Mapped old(gpu_, alias(), first_);
    const bool right = holds(alias(), 1) && holds(chunk(), 2);
    mapped_.reset();
    if (!ran_on) return Outcome::waited;
    return right ? Outcome::right : Outcome::wrong_bytes;
  }

  const Gpu& gpu_;
  const std::size_t chunk_bytes_;
  Range range_;
  Frame walked_frame_, first_, second_;
  Mapped walked_;
  std::optional<Mapped> mapped_;
  Stream stream_;
  Event done_;
  Grid grid_{.blocks = 16, .threads = 256};
};

void measure(const ProbeOptions& options, Recorder& recorder, const char* order,
             Outcome (Scene::*once)(Cell&, double)) {
  const Gpu gpu(options.driver);
  for (const std::size_t mib : {std::size_t{2}, std::size_t{32}, std::size_t{256}}) {
    if (recorder.quick() && mib > 2) continue;
    recorder.measure(
        1, "remap_between", {{"order", order}, {"chunk_mib", mib}}, {{"exchange", "us"}, {"outcomes", ""}},
        [&](Cell& cell) {
          Scene scene(gpu, mib * mebibyte);
          int right = 0, wrong = 0, waited = 0;
          for (int i = recorder.repetitions(21); i > 0 && waited < 3; --i) {  // who waits three times has told us
            const Outcome outcome = (scene.*once)(cell, busy_ms);
            right += outcome == Outcome::right ? 1 : 0;
            wrong += outcome == Outcome::wrong_bytes ? 1 : 0;
            waited += outcome == Outcome::waited ? 1 : 0;
          }
          cell.fact("outcomes", {{"right", right}, {"wrong_bytes", wrong}, {"waited_for_the_device", waited}});
        });
  }
}

}  // namespace

void measure_remap_waited(const ProbeOptions& options, Recorder& recorder) {
  measure(options, recorder, "waited", &Scene::waited);
}

void measure_remap_queued(const ProbeOptions& options, Recorder& recorder) {
  measure(options, recorder, "queued", &Scene::queued);
}

}  // namespace vedette::gpu
