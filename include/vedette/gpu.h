// GPU memory as the fast memory of a session (SessionOptions::fast = "gpu:0"). Session::allocate() then returns a name:
// an address that cannot be read or written, under which the session knows the tensor for life. The tensor's bytes lie
// at a device address, which changes when the tensor moves, and has none while it is away.
//
// An op is announced when its work is queued, on the program's current stream. Device addresses are valid for work
// that is queued between the op's begin and its end. All order is by events between streams: no call waits for the
// device, but where pinned host memory is used up.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

using DeviceAddress = std::uint64_t;  // 0: none

// The program's answers to a session. It outlives the session and all of its tensors.
class GpuProgram {
 public:
  virtual ~GpuProgram() = default;
  // The CUstream on which the calling thread queues its work; nullptr is the default stream. Any thread that calls the
  // session.
  virtual void* current_stream() noexcept = 0;
  // False: code that does not hear of moves holds the tensor's address. The tensor stays until GpuMemory::allow_moves()
  // is called for it again. As moved().
  virtual bool may_move(const void* name) noexcept {
    static_cast<void>(name);
    return true;
  }
  // The tensor lies elsewhere now, or is away. Any thread that calls the session, in that call; it must not call the
  // session back.
  virtual void moved(const void* name, DeviceAddress address) noexcept = 0;
  // Whether work that is queued on the current stream by now leaves the same bytes in two stretches of device memory,
  // for which the calling thread waits. nullopt: the program has no kernel for that; then the session copies both to
  // the host. As moved().
  virtual std::optional<bool> same_bytes(DeviceAddress one, DeviceAddress other, std::uint64_t bytes) noexcept {
    static_cast<void>(one), static_cast<void>(other), static_cast<void>(bytes);
    return std::nullopt;
  }
  // The op that begins has no room for its operands together, `error` says why. `begin_again`: the program has released
  // some of them since, whose bytes are where GpuMemory::copy_to() put them; `run_without`: it queues no work of this
  // op; `end`: it can do neither. The thread whose op begins; it may call the session, but for ops.
  enum class NoRoom : std::uint8_t { begin_again, run_without, end };
  virtual NoRoom no_room(std::span<const void* const> operands, const Error& error) noexcept {
    static_cast<void>(operands), static_cast<void>(error);
    return NoRoom::end;
  }
  // Memory of the device that the program holds beside the session's, in bytes. As current_stream().
  struct Beside {
    std::uint64_t reserved = 0, most_reserved = 0;       // all of it; at most, as far as the program looked
    std::uint64_t large = 0, pools = 0, workspaces = 0;  // of it, as GpuBytes names them (vedette/observer.h)
  };
  virtual Beside beside() noexcept { return {}; }
};

// Memory of a table (SessionOptions::table_memory): it never moves, and work may use it at any time. It is given back
// when the last copy of `memory` goes, for which the host waits for the device; it may outlive the session.
struct GpuTable {
  DeviceAddress address = 0;
  std::shared_ptr<void> memory;
};
struct GpuLookup {          // of rows of a table, by work that is queued
  DeviceAddress table = 0;  // as GpuTable has it
  std::uint64_t first = 0;  // where row 0 begins in it
  std::uint64_t rows = 0;   // of the table
  std::uint64_t row_bytes = 0;
  DeviceAddress numbers = 0;  // of the rows, one behind the other in device memory; negative ones count from the end
  std::uint64_t count = 0;    // how many of them
  std::uint32_t number_bytes = 8;  // or 4, of each
};
struct GpuTableCounters {
  std::uint64_t rows_on_device = 0, rows_on_host = 0;  // looked up, where they lay then
  std::uint64_t moves = 0;                             // pieces that became the device's
  std::uint64_t device_bytes = 0, host_bytes = 0;      // of living tables
  std::uint64_t most_device_bytes = 0;                 // at once
  std::uint64_t bytes() const noexcept { return device_bytes + host_bytes; }
};

// The functions of a GPU session beside Session's. Thread rule: any thread in which the device's context is current.
class GpuMemory {
 public:
  virtual DeviceAddress address(const void* name) const noexcept = 0;  // 0: away, or no tensor
  // From now on the tensor may move; until then its address is valid for all code.
  virtual void allow_moves(const void* name) noexcept = 0;
  // Until then it stays, if it is in place, and plans leave its place out.
  virtual void forbid_moves(const void* name) noexcept = 0;
  // The program is about to capture work of its streams. Meanwhile it calls the session, in a thread whose stream is
  // captured, with another stream as the current one.
  virtual void will_be_captured() noexcept = 0;
  // Queues a copy of the tensor's bytes, in fast memory or away, to memory of the program's on its current stream.
  // Errors: those of a fetch from a disk, and the driver's.
  virtual Result<void> copy_to(const void* name, DeviceAddress to) = 0;
  // Work that is queued on `stream` by now uses the tensor, though no op announced it there: its place is not given
  // to another tensor before that work is done.
  virtual void used_on(const void* name, void* stream) noexcept = 0;
  // The one range of device memory in which all tensors lie, and how much of it they take now, and took at most.
  struct Range {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0, in_use = 0, most_in_use = 0;
  };
  virtual Range memory() const noexcept = 0;

  // A tensor of so many bytes is a table: larger than table_memory, and than half of the rest of fast memory.
  virtual bool is_table(std::uint64_t bytes) const noexcept = 0;
  virtual Result<GpuTable> allocate_table(std::uint64_t bytes) = 0;  // where is_table()
  // Between the begin and the end of the op that looks them up, so that the numbers lie where it has them.
  virtual void looked_up(const GpuLookup& lookup, void* stream) noexcept = 0;
  virtual GpuTableCounters tables() const noexcept = 0;
  // The parts of living tables that are in device memory now, by address; neighbours of one table are one.
  struct HotPart {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
  };
  virtual std::vector<HotPart> table_parts() const = 0;

 protected:
  ~GpuMemory() = default;
};

}  // namespace vedette
