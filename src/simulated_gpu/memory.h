// Device memory that is none: addresses that the host cannot touch, and frames that kernels reach only while mapped.
//
// A device address lies in a range of pages that are PROT_NONE for ever. Streams' threads reach the same bytes in a
// second range, the shadow, where a chunk appears when a frame is mapped at it. So a host that dereferences a device
// pointer, and a kernel that touches a chunk without a frame, fault at that instruction, and the process ends with a
// sentence that names the operator. Frames are pages of one memory file: its size is the device's memory. Frames of the
// host, which a range may have, too, are pages of another.
//
// Thread rule: any thread. A copy or a kernel that uses memory runs on a stream's thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "simulated_gpu/options.h"
#include "simulated_gpu/shared_frames.h"

namespace vedette::simulated {

constexpr std::size_t chunk_bytes = std::size_t{2} << 20;

class Memory {
 public:
  using Frame = std::uint32_t;
  static constexpr std::size_t range_bytes = std::size_t{64} << 30;  // of addresses
  enum class Of : std::uint8_t { device, host };

  explicit Memory(std::size_t bytes, const std::string& shared = {});

  bool holds(const void* at) const noexcept;  // is it a device address?
  const std::byte* first() const noexcept { return reinterpret_cast<const std::byte*>(begin_); }
  void* reach(const void* at) const noexcept;  // where streams' threads reach it; a host address is reached as it is
  std::optional<std::uintptr_t> reserve(std::size_t bytes, std::size_t alignment);  // whole chunks
  bool give_back(std::uintptr_t at, std::size_t bytes);
  bool reserved(std::uintptr_t at, std::size_t bytes) const;

  std::optional<std::vector<Frame>> take(std::size_t count, Of = Of::device);  // the host has any number
  void give_back(const std::vector<Frame>&, Of = Of::device);
  std::size_t free_bytes() const;
  std::size_t most_in_use() const;
  std::size_t bytes() const noexcept { return bytes_; }

  void show(std::uintptr_t at, Frame, Of = Of::device);  // at a chunk
  void hide(std::uintptr_t at, std::size_t bytes);
  void show_host(std::uintptr_t at, Frame);  // a frame of the host, at its device address: the host reaches it there
  void hide_from_host(std::uintptr_t at, std::size_t bytes);

  void pin(const void* at, std::size_t bytes);
  bool unpin(const void* at);
  bool pinned(const void* at, std::size_t bytes = 1) const;
  std::size_t pinned_bytes(const void* at) const;  // of the range that begins at `at`; 0: there is none
  std::size_t pinned_ranges() const;
  std::size_t all_pinned_bytes() const;
  std::size_t ranges() const;
  // The sentence for a fault at `at`; nullptr when it is none of ours. Safe in a signal handler.
  const char* fault(std::uintptr_t at, char* text, std::size_t size) const noexcept;

 private:
  std::uintptr_t begin_ = 0, shadow_ = 0, top_ = 0;
  std::size_t bytes_ = 0;
  int file_ = -1, host_file_ = -1;
  mutable std::mutex guard_;
  std::vector<Frame> free_, host_free_;
  Frame host_frames_ = 0;
  std::size_t fewest_free_ = 0;
  SharedFrames shared_;
  std::map<std::uintptr_t, std::size_t> ranges_, holes_;  // reserved, and given back below top_
  std::map<std::uintptr_t, std::size_t> pinned_;
};

Memory& memory();          // made on first use, of the size that options() says
const Options& options();  // of SIMULATED_GPU, or of control.h
void set_options(const Options&);

extern thread_local const char* running;  // the operator that this stream's thread runs, for the sentence of a fault

}  // namespace vedette::simulated
