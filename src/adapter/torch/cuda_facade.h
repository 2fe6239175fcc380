// Stands in front of libtorch's CUDA allocator, in a library of its own: it alone needs a libtorch for CUDA, and a
// program loads it when its guard is one of GPU memory. Its hooks make all decisions.
//
// Thread rule: install once; the hooks are called from any thread, for as long as the process lives.
#pragma once
#include <c10/core/Allocator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "vedette/gpu.h"

namespace vedette::adapter {

class CudaHooks {
 public:
  virtual ~CudaHooks() = default;
  virtual bool active() const noexcept = 0;  // a guard of GPU memory lives
  // A DataPtr without a context leaves the allocation to libtorch's own allocator. May throw c10::Error.
  virtual c10::DataPtr allocate(std::size_t bytes) = 0;
  // Work queued on `stream` (a CUstream) uses the memory. False: the memory is libtorch's own.
  virtual bool record_stream(const c10::DataPtr& memory, void* stream) = 0;
  // libtorch's own memory may be inside of a DataPtr of ours.
  virtual const c10::DataPtr& libtorchs(const c10::DataPtr& memory) const noexcept = 0;
  virtual int number() const noexcept = 0;  // of the guard's GPU
  // A guard's part of that GPU's memory; nothing where no guard lives.
  struct Held {
    struct Block {
      std::uint64_t address = 0, bytes = 0;
    };
    GpuMemory::Range memory;
    GpuTableCounters tables;
    std::vector<Block> blocks;                    // those in place, in the order of their addresses
    std::vector<GpuMemory::HotPart> table_parts;  // with blocks alone
  };
  virtual std::optional<Held> held(bool with_blocks) = 0;
  // Pools of the guard's GPU, which graphs and MemPools allocate from.
  virtual void pool_begins() = 0;                     // threads allocate from it now, and streams may be captured
  virtual void pool_ends(c10::MempoolId_t pool) = 0;  // they do not any more
  virtual void pool_died(c10::MempoolId_t pool) = 0;  // its last graph or MemPool is gone
};

// The functions of the library for its caller. Workspaces are memory that libtorch gives to cuBLAS. It takes one from
// its allocator for each thread and stream when a product first needs one, and keeps it. Since 2.15 it takes one for
// each product and frees it. Then the library gives it one that it keeps for the stream.
struct CudaPart {
  c10::Allocator* native = nullptr;               // libtorch's own, for ever
  std::uint64_t (*memory_of_device)() = nullptr;  // all bytes of the current one; 0: unknown
  // Those that the calling thread's current stream lacks; with `lt` cuBLASLt's, too. May throw c10::Error.
  void (*make_workspaces)(bool lt) = nullptr;
  // Those for which `ours` holds become libtorch's own memory, or are made again when they are needed. No product is
  // being queued with one of them.
  void (*exchange_workspaces)(const std::function<bool(const c10::DataPtr&)>& ours) = nullptr;
  void (*let_workspaces_go)() = nullptr;  // frees those that the library keeps
  // The pool of the graph into which the calling thread's current stream is captured; nullopt: it is not.
  std::optional<c10::MempoolId_t> (*capture_here)() = nullptr;
  // A stream of the current device that is ours alone and never captured. Work there may allocate in a capture, too.
  void* (*beside_captures)() = nullptr;
  void (*run_beside_captures)(const std::function<void()>& work) = nullptr;
  void (*wait_beside_captures)() = nullptr;  // for that stream. The host waits
  bool (*wait_for_device)() = nullptr;       // false: it cannot, since a stream is captured. The host waits
  std::uint64_t (*bytes_of_pool)(c10::MempoolId_t pool) = nullptr;
  bool (*has_graphs)() = nullptr;  // a pool lives on the current device
  // The calling thread's current stream allocates from a pool: it is captured, or the thread uses a MemPool.
  bool (*pool_here)() = nullptr;
  // On a stream of its own the memory gets late_byte in each byte, `lead` after others. `behind`, a CUstream, waits for
  // that by an event. nullptr: a call failed. The end waits for the work.
  static constexpr unsigned char late_byte = 2;
  void* (*begin_late_fill)(void* memory, std::size_t bytes, void* behind, std::chrono::microseconds lead) = nullptr;
  void (*end_late_fill)(void* work) = nullptr;
  struct Reserved {  // by libtorch, on a device, in bytes
    std::uint64_t all = 0, pools = 0, workspaces = 0;
  };
  Reserved (*reserved)(int device) = nullptr;
};

// Of cuda_late_fill.cc.
void* begin_late_fill(void* memory, std::size_t bytes, void* behind, std::chrono::microseconds lead);
void end_late_fill(void* work);

}  // namespace vedette::adapter

extern "C" {
// `hooks` live for ever.
const vedette::adapter::CudaPart* vedette_cuda_install(vedette::adapter::CudaHooks* hooks);
}
