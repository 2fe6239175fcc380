// See device.h.
#include "gpu_probe/device.h"

#include <chrono>
#include <thread>

#include "gpu_probe/kernels.h"

namespace vedette::gpu {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Gpu::Gpu(const std::string& driver_file) : cuda(driver_file) {
  int count = 0;
  cuda.device_count(&count);
  if (count == 0) throw Refused("a driver, but no device");
  cuda.device(&device, 0);
  cuda.retain_context(&context_, device);
  make_current();
  multiprocessors = static_cast<unsigned>(attribute(Attribute::multiprocessor_count));
  cuda.module_load(&module_, kernels_ptx);
  cuda.module_function(&kernels.compute, module_, "compute");
  cuda.module_function(&kernels.walk, module_, "walk");
  cuda.module_function(&kernels.read, module_, "read");
  cuda.module_function(&kernels.write, module_, "write");
  cuda.module_function(&kernels.check, module_, "check");
  cuda.module_function(&kernels.touch, module_, "touch");
  cuda.module_function(&kernels.store, module_, "store");
  void* words = nullptr;
  cuda.host_allocate(&words, 4096, host_allocate_portable | host_allocate_mapped);
  words_ = static_cast<volatile std::uint32_t*>(words);
  for (std::size_t i = 0; i < Word::count; ++i) words_[i] = 0;
  cuda.device_pointer(&words_device_, words, 0);
}

Gpu::~Gpu() {
  if (words_ != nullptr) cuda.host_free.error(const_cast<std::uint32_t*>(words_));
  if (module_ != nullptr) cuda.module_unload.error(module_);
  cuda.release_context.error(device);  // ours alone: other processes have their own
}

void Gpu::make_current() const { cuda.set_context(context_); }

int Gpu::attribute(Attribute which) const {
  int value = 0;
  cuda.attribute(&value, which, device);
  return value;
}

std::size_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  cuda.memory_info(&free, &total);
  return free;
}

std::string Gpu::name() const {
  char text[256] = "";
  cuda.device_name(text, sizeof text, device);
  return text;
}

std::string Gpu::pci_bus_id() const {
  char text[64] = "";
  cuda.bus_id(text, sizeof text, device);
  return text;
}

bool Event::done() const {
  const int error = gpu_.cuda.event_query.error(handle_);
  if (error != success && error != error_not_ready) gpu_.cuda.library.refuse(error, "cuEventQuery");
  return error == success;
}

double Event::us_since(const Event& begin) const {
  float ms = 0;
  gpu_.cuda.event_elapsed_ms(&ms, begin.handle_, handle_);
  return static_cast<double>(ms) * 1000;
}

Range::Range(const Gpu& gpu, std::size_t bytes, std::size_t alignment) : gpu_(gpu), bytes_(bytes) {
  gpu.cuda.reserve(&address_, bytes, alignment, 0, 0);
}

Frame::Frame(const Gpu& gpu, std::size_t bytes, Location location) : gpu_(&gpu), bytes_(bytes) {
  AllocationProperties properties;
  properties.location = location;
  gpu.cuda.create(&handle_, bytes, &properties, 0);
}

void Frame::release() {
  if (handle_ != 0) gpu_->cuda.release.error(std::exchange(handle_, 0));
}

Mapped::Mapped(const Gpu& gpu, Address at, const Frame& frame) : gpu_(gpu), at_(at), bytes_(frame.bytes()) {
  gpu.cuda.map(at, bytes_, 0, frame.get(), 0);
  const AccessDescription access = access_for_device(gpu);
  if (const int error = gpu.cuda.set_access.error(at, bytes_, &access, 1); error != success) {
    gpu.cuda.unmap.error(at, bytes_);  // the destructor of what was not constructed does not run
    gpu.cuda.library.refuse(error, "cuMemSetAccess");
  }
}

AccessDescription access_for_device(const Gpu& gpu) {
  return {.location = {.type = LocationType::device, .id = gpu.device}};
}

std::size_t granularity(const Gpu& gpu, Location location) {
  AllocationProperties properties;
  properties.location = location;
  std::size_t bytes = 0;
  gpu.cuda.granularity(&bytes, &properties, granularity_minimum);
  return bytes;
}

Pinned::Pinned(const Gpu& gpu, std::size_t bytes) : gpu_(gpu) {
  gpu.cuda.host_allocate(&data_, bytes, host_allocate_portable | host_allocate_mapped);
  gpu.cuda.device_pointer(&address_, data_, 0);
}

Grid whole_device(const Gpu& gpu) { return {.blocks = 2 * gpu.multiprocessors, .threads = 256}; }

Busy::Busy(const Gpu& gpu, double limit_ms, Address from, std::size_t bytes)
    : gpu_(gpu), stream_(gpu), stops_(gpu), end_(gpu), stop_(gpu, sizeof(std::uint32_t)) {
  volatile std::uint32_t* const words = gpu.words();
  words[Word::started] = 0;
  tell(stream_, false);
  const auto limit_ns = static_cast<std::uint64_t>(limit_ms * 1e6);
  const Address started = gpu.word_address(Word::started);
  // One block of 128 threads a multiprocessor: its time slots are taken, and there is room for the small kernels of the
  // measurement.
  const Grid grid{.blocks = gpu.multiprocessors, .threads = 128};
  if (bytes == 0) {
    launch(gpu, gpu.kernels.compute, grid, stream_, limit_ns, started, stop_.address(), gpu.word_address(Word::sink));
  } else {
    launch(gpu, gpu.kernels.walk, grid, stream_, limit_ns, started, stop_.address(), from, std::uint64_t{bytes / 16});
  }
  end_.record(stream_);
  while (words[Word::started] == 0 && running()) std::this_thread::yield();
}

void Busy::tell(const Stream& stream, bool stop) const {
  gpu_.words()[Word::stop] = stop ? 1 : 0;
  gpu_.cuda.copy(stop_.address(), gpu_.word_address(Word::stop), sizeof(std::uint32_t), stream.get());
  stream.wait();
}

Busy::~Busy() {
  try {
    stop();
  } catch (const Refused&) {  // the kernel ends by its time
    gpu_.cuda.stream_synchronize.error(stream_.get());
  }
}

void Busy::ask_to_stop() { tell(stops_, true); }

void Busy::stop() {
  ask_to_stop();
  stream_.wait();
}

}  // namespace vedette::gpu
