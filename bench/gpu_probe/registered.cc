// Point 3: can the frames of the processor's tier be the device's, too: what does it cost to register memory in pieces,
// a GiB, and how fast are copies from and to it? What does it cost to allocate pinned memory instead?
//
// memfd: shared mapping of a memory file, as frames are whose pages are tracked. anonymous: private memory in huge
// pages, as frames are otherwise (src/os/chunk_memory.h). Both are populated before they are registered.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "gpu_probe/groups.h"
#include "gpu_probe/transfer.h"
#include "os/probe.h"

namespace vedette::gpu {
namespace {

class HostMemory {
 public:
  HostMemory(bool shared, std::size_t bytes) : bytes_(bytes) {
    if (shared) {
      file_ = Fd(::memfd_create("gpu_probe", MFD_CLOEXEC));
      if (!file_ || ::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) fail("memfd");
    }
    // One huge page more, so that the memory can begin at one.
    reserved_ = bytes + 2 * mebibyte;
    void* const whole = ::mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (whole == MAP_FAILED) fail("mmap");
    base_ = static_cast<std::byte*>(whole);
    const std::size_t off = (2 * mebibyte - reinterpret_cast<std::uintptr_t>(base_) % (2 * mebibyte)) % (2 * mebibyte);
    data_ = base_ + off;
    const int flags = MAP_FIXED | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    if (::mmap(data_, bytes, PROT_READ | PROT_WRITE, flags, shared ? file_.get() : -1, 0) == MAP_FAILED) fail("mmap");
    ::madvise(data_, bytes, MADV_HUGEPAGE);
    for (std::size_t at = 0; at < bytes; at += 4096) data_[at] = std::byte{1};
  }
  ~HostMemory() { ::munmap(base_, reserved_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  [[noreturn]] static void fail(const char* what) { throw Refused(std::string(what) + ": " + std::strerror(errno)); }
  Fd file_;
  std::size_t bytes_, reserved_ = 0;
  std::byte *base_ = nullptr, *data_ = nullptr;
};

// Registered pieces; those that the driver took are given back in any case.
class Registration {
 public:
  Registration(const Gpu& gpu, const HostMemory& memory, std::size_t piece)
      : gpu_(gpu), begin_(memory.data()), piece_(piece) {
    for (; pieces_ * piece < memory.bytes(); ++pieces_) {
      if (const int error = gpu.cuda.host_register.error(begin_ + pieces_ * piece, piece,
                                                         host_register_portable | host_register_mapped);
          error != success) {
        clear();
        gpu.cuda.library.refuse(error, "cuMemHostRegister");
      }
    }
  }
  ~Registration() { clear(); }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  void clear() {
    for (; pieces_ > 0; --pieces_) gpu_.cuda.host_unregister.error(begin_ + (pieces_ - 1) * piece_);
  }

 private:
  const Gpu& gpu_;
  std::byte* begin_;
  std::size_t piece_, pieces_ = 0;
};

void measure_pieces(const Gpu& gpu, const HostMemory& memory, std::size_t piece, int repetitions, Cell& cell) {
  const double ms_per_gib = 1e-3 * 1024 * mebibyte / static_cast<double>(memory.bytes());
  const std::size_t copied = std::min(piece, 64 * mebibyte);  // of one piece: a copy across two is another question
  const DeviceMemory device(gpu, copied);
  Lane lane(gpu);
  for (int i = 0; i < repetitions; ++i) {
    const double begin = now_us();
    Registration registration(gpu, memory, piece);
    cell.sample("register", (now_us() - begin) * ms_per_gib);
    Address address = 0;
    gpu.cuda.device_pointer(&address, memory.data(), 0);
    cell.fact("same_address", address == reinterpret_cast<std::uintptr_t>(memory.data()));
    cell.sample("copy_in", copy_gb_per_s(gpu, lane, device.address(), address, copied));
    cell.sample("copy_out", copy_gb_per_s(gpu, lane, address, device.address(), copied));
    const double end = now_us();
    registration.clear();
    cell.sample("unregister", (now_us() - end) * ms_per_gib);
  }
}

void allocate_pieces(const Gpu& gpu, std::size_t piece, std::size_t bytes, Cell& cell) {
  const double ms_per_gib = 1e-3 * 1024 * mebibyte / static_cast<double>(bytes);
  std::vector<std::unique_ptr<Pinned>> pieces;
  const double begin = now_us();
  for (std::size_t at = 0; at < bytes; at += piece) pieces.push_back(std::make_unique<Pinned>(gpu, piece));
  const double end = now_us();
  pieces.clear();
  cell.sample("allocate", (end - begin) * ms_per_gib);
  cell.sample("free", (now_us() - end) * ms_per_gib);
}

// A GiB, or what a quarter of the free memory holds.
std::size_t bytes_to_pin(const Recorder& recorder) {
  const std::size_t wanted = (recorder.quick() ? 16 : 1024) * mebibyte;
  const MachineFacts facts = probe_machine();
  const std::size_t room =
      std::min(facts.available_memory.value, facts.memory_limit ? facts.memory_limit->value : ~std::uint64_t{0});
  return std::min(wanted, room / 4 / (64 * mebibyte) * 64 * mebibyte);
}

}  // namespace

void measure_pinned(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const std::size_t bytes = bytes_to_pin(recorder);
  for (const std::size_t mib : {std::size_t{2}, std::size_t{32}, std::size_t{256}, std::size_t{1024}}) {
    if (recorder.quick() && mib > 2) continue;
    recorder.measure(3, "pinned_memory", {{"piece_mib", mib}, {"mib", bytes / mebibyte}},
                     {{"allocate", "ms/GiB"}, {"free", "ms/GiB"}}, [&](Cell& cell) {
                       if (bytes < mib * mebibyte) throw Refused("too little memory is free");
                       for (int i = recorder.repetitions(7); i > 0; --i)
                         allocate_pieces(gpu, mib * mebibyte, bytes, cell);
                     });
  }
}

void measure_registered(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const std::size_t wanted = (recorder.quick() ? 16 : 1024) * mebibyte;
  const std::size_t bytes = bytes_to_pin(recorder);
  for (const bool shared : {true, false}) {
    std::optional<HostMemory> memory;
    for (const std::size_t piece : {2 * mebibyte, 16 * mebibyte, 64 * mebibyte, wanted}) {
      if (piece > wanted) continue;
      if (recorder.quick() && piece == wanted) continue;
      recorder.measure(
          3, "registered",
          {{"memory", shared ? "memfd" : "anonymous"}, {"piece_mib", piece / mebibyte}, {"mib", bytes / mebibyte}},
          {{"register", "ms/GiB"},
           {"unregister", "ms/GiB"},
           {"copy_in", "GB/s"},
           {"copy_out", "GB/s"},
           {"same_address", ""}},
          [&](Cell& cell) {
            if (bytes < piece) throw Refused("too little memory is free");
            if (!memory) memory.emplace(shared, bytes);
            measure_pieces(gpu, *memory, piece, recorder.repetitions(7), cell);
          });
    }
  }
}

}  // namespace vedette::gpu
