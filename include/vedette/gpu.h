// GPU memory as the fast memory of a session (SessionOptions::fast = "gpu:0"). What Session::allocate() returns is then
// a name: an address that cannot be read or written, under which the session knows the tensor for life. The tensor's
// bytes lie at a device address, which changes when the tensor moves, and has none while it is away.
//
// An op is announced when its work is queued, on the program's current stream. Device addresses are valid for work
// that is queued between the op's begin and its end. All order is by events between streams: no call waits for the
// device, but where pinned host memory is used up.
#pragma once
#include <cstdint>

namespace vedette {

using DeviceAddress = std::uint64_t;  // 0: none

// What a session asks of the program. It outlives the session and all of its tensors.
class GpuProgram {
 public:
  virtual ~GpuProgram() = default;
  // The CUstream on which the calling thread queues its work; nullptr is the default stream. Any thread that calls the
  // session.
  virtual void* current_stream() noexcept = 0;
  // False: the tensor's address was given to somebody who would not hear that it moves. It stays until
  // GpuMemory::allow_moves() is called for it again. As moved().
  virtual bool may_move(const void* name) noexcept {
    static_cast<void>(name);
    return true;
  }
  // The tensor lies elsewhere now, or is away. Any thread that calls the session, in that call; it must not call the
  // session back.
  virtual void moved(const void* name, DeviceAddress address) noexcept = 0;
};

// What a program asks besides Session's functions. Thread rule: any thread in which the device's context is current.
class GpuMemory {
 public:
  virtual DeviceAddress address(const void* name) const noexcept = 0;  // 0: away, or no tensor
  // From now on the tensor may move; before, whoever holds its address can use it.
  virtual void allow_moves(const void* name) noexcept = 0;
  // Work that is queued on `stream` by now uses the tensor, though no op announced it there: its place is not given
  // to another tensor before that work is done.
  virtual void used_on(const void* name, void* stream) noexcept = 0;
  // The one range of device memory in which all tensors lie, and how much of it they take now, and took at most.
  struct Range {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0, in_use = 0, most_in_use = 0;
  };
  virtual Range memory() const noexcept = 0;

 protected:
  ~GpuMemory() = default;
};

}  // namespace vedette
