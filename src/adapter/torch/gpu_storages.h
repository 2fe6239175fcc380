// Storages of CUDA tensors whose memory a session moves. A move changes the storage's pointer, for every view of it at
// once; the pointer of one that is away is null. A storage leaves only once an operator was seen with it: before, its
// pointer may be on its way to an operator.
//
// What always holds: the context of a DataPtr of ours is its Handle, which names the session's tensor. A storage that
// is being destroyed is not touched. A table's context is its GpuTable: its pointer never changes, and the session
// never hears of it as of a tensor.
//
// Thread rule: any thread; open() and activate() belong to the thread that makes and ends guards. Immortal, because
// storages outlive every guard.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "adapter/torch/allocator.h"
#include "adapter/torch/cuda_facade.h"
#include "vedette/gpu.h"
#include "vedette/session.h"

namespace vedette::adapter {

class GpuStorages final : public GpuProgram, public CudaHooks {
 public:
  // Loads CUDA's part of libtorch and of this adapter. Throws Failure, which names the missing part.
  static GpuStorages& open();
  // For a guard of the GPU with this number. Throws Failure where the program sees fewer.
  static GpuStorages& open(int number);
  // The GPU of this process: the one of LOCAL_RANK, which torchrun sets, else the calling thread's current one.
  static int own_number();
  static GpuStorages* opened() noexcept;  // nullptr: no guard of GPU memory has lived

  // Allocations of at least `small` bytes go to the session from now on; nullptr: to libtorch's own allocator. `say` is
  // told once of what the budget has no room for.
  void activate(Session* session, std::size_t small, std::function<void(std::string_view)> say = {});
  // Pieces of memory for which the budget had no room since then: they are libtorch's own, beside the budget.
  std::uint64_t pieces_beside_the_budget() const noexcept { return beside_.load(); }
  // Another one, of which a sentence tells once, counted as long as it lives. Throws c10::Error where the device has no
  // room for it. `in_place_of`: as native().
  c10::DataPtr piece_beside(std::size_t bytes, bool is_told = true, const c10::StorageImpl* in_place_of = nullptr);
  // The storage's bytes, wherever they are, lie in such a piece from now on, for good. Throws c10::Error.
  void move_beside(c10::StorageImpl& storage);
  // A thread that does not train has GPU memory of its own: it may use the guard's, too, and has to be heard.
  bool others_compute() const noexcept { return others_compute_.load(std::memory_order_relaxed); }
  bool active() const noexcept override { return session_.load() != nullptr; }
  Session* session() const noexcept { return session_.load(); }  // of the living guard

  // The session's name of a storage's memory; nullptr: it is not ours.
  static const void* name_of(const c10::StorageImpl& storage) noexcept;
  // Where a table begins that has the storage (SessionOptions::table_memory); 0: it is none.
  static DeviceAddress table_of(const c10::StorageImpl& storage) noexcept;
  static std::shared_ptr<void> shared_table_of(const c10::StorageImpl& storage);  // which it keeps; nullptr: it is none
  bool is_of_this_session(const c10::StorageImpl& storage) const noexcept;        // the living guard's
  bool lives(const void* name) const noexcept;                                    // a storage has it
  // It does not move any more as long as it lives: code that hears of no moves has its address. It is in place now.
  void keep_in_place(const c10::StorageImpl& storage);
  // The pool of the graph into which this thread's current stream is captured (gpu_graphs.h); nullopt: it is not.
  std::optional<c10::MempoolId_t> captured_here() const noexcept;
  void* beside_captures() const noexcept;  // another stream, of this thread's calls of the session meanwhile
  void run_beside_captures(const std::function<void()>& work) const;  // on that stream
  // It comes, and stays until its graphs are gone, also where its storage is gone before. False: there is no room.
  bool keep_for_graph(c10::StorageImpl& storage);
  void looked_up(const GpuLookup& lookup);  // by an operator that ends on this thread's current stream
  // An operator has the storage as an operand or a result: it may move when the operator has ended. Returns its name,
  // as name_of() does.
  const void* seen(c10::StorageImpl& storage);
  // The session's memory takes the place of the storage's own, whose bytes it has: in device memory where there is
  // room, else away. It may move at once. False: it stays libtorch's. Throws Failure.
  bool adopt(c10::StorageImpl& storage, std::string_view name, TensorKind kind);
  bool was_seen(const c10::StorageImpl& storage) const noexcept;  // and may move
  static c10::Device device() noexcept;                           // the guard's; other GPUs' memory is libtorch's own
  // The calling thread's current device is the guard's.
  static bool on_its_device() noexcept;
  std::uint64_t memory_of_device() const;                              // of the guard's, in bytes; 0: unknown
  std::size_t longest_list() const noexcept { return longest_list_; }  // in bytes, of one op (gpu_lists.h)
  // Allocations of so many bytes are libtorch's own.
  bool leaves_to_libtorch(std::size_t bytes) const noexcept { return bytes < small_; }
  // As note_births() and redirect_births() of allocator.h, for GPU memory; addresses are names, and a redirected birth
  // lies where the named tensor does.
  static void note_births(std::vector<Noted>* births) noexcept;
  static void redirect_births(std::vector<Redirected>* births) noexcept;
  // libtorch's own memory; may throw. Once a storage's bytes lie there, libtorch gives it out again in the order of the
  // stream on which the storage was born, as it does without a guard. The host may wait for the GPU.
  c10::DataPtr native(std::size_t bytes, const c10::StorageImpl* in_place_of = nullptr);
  const CudaPart& cuda() const noexcept { return *cuda_; }

  // Moves every storage of a session to libtorch's own memory, but for those that other libraries have, too. Those for
  // which there is no room stay, and are null where they are away. `say` gets a sentence of either.
  void bring_all_home(Session& ending, const std::function<void(std::string_view)>& say);
  // Destroys storages that were kept while the session held its lock. Called after each call of the session.
  void settle();

  // Has libtorch make cuBLAS's workspaces of this thread and its current stream in memory of its own: it keeps them for
  // ever. With `lt` cuBLASLt's, too. Nothing where they are there.
  void prepare_workspaces(bool lt) noexcept;
  // An op of this thread has ended, and storages have its results. A workspace that the op made becomes libtorch's own
  // memory. Other memory that no storage has stays where it is, and plans leave it out (Executor::range_of_plans).
  void op_has_ended();

  // --- GpuProgram, CudaHooks
  void* current_stream() noexcept override;
  bool may_move(const void* name) noexcept override;
  void moved(const void* name, DeviceAddress address) noexcept override;
  NoRoom no_room(std::span<const void* const> operands, const Error& error) noexcept override;  // gpu_beside.cc
  std::optional<bool> same_bytes(DeviceAddress one, DeviceAddress other, std::uint64_t bytes) noexcept override;
  c10::DataPtr allocate(std::size_t bytes) override;
  Beside beside() noexcept override;
  bool record_stream(const c10::DataPtr& memory, void* stream) override;
  const c10::DataPtr& libtorchs(const c10::DataPtr& memory) const noexcept override;
  int number() const noexcept override { return device().index(); }
  std::optional<Held> held(bool with_blocks) override;
  void pool_begins() override;
  void pool_ends(c10::MempoolId_t pool) override;
  void pool_died(c10::MempoolId_t pool) override;

 private:
  struct Handle {
    const void* name = nullptr;
    std::size_t bytes = 0;
    c10::Stream born_on;
    GpuMemory* memory = nullptr;  // its session's, whose Session may be gone: it lives as long as the tensor
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;  // as an operator was last seen with it
    const c10::StorageImpl* seen = nullptr;                            // the same, to compare
    bool kept = false;                                                 // it never moves again
    std::uint32_t pools = 0;                                           // of graphs that use it: it does not move
    bool outlived = false;                                             // by its graphs
  };

  struct PieceBeside {
    c10::DataPtr memory;
    std::size_t bytes = 0;
  };

  GpuStorages() = default;
  void tell_beside(std::size_t bytes);
  static void free_beside(void* context);
  bool takes(std::size_t bytes) const noexcept;
  c10::DataPtr enter(Session& session, const void* name, std::size_t bytes);
  c10::DataPtr allocate_scratch(Session& session, std::size_t bytes);
  static void free(void* context);
  static void free_table(void* context);
  void let_go_of_graph(const void* name);
  void see_earlier_graphs();
  c10::DataPtr allocate_table(Session& session, std::size_t bytes);
  static c10::DataPtr pointer_to(DeviceAddress address, Handle* handle);
  static GpuStorages*& instance() noexcept;

  const CudaPart* cuda_ = nullptr;
  c10::Allocator* native_ = nullptr;
  std::atomic<Session*> session_{nullptr};
  std::size_t small_ = 0, longest_list_ = 0;
  std::function<void(std::string_view)> say_;
  std::atomic<std::uint64_t> beside_{0};
  std::atomic<bool> others_compute_{false};
  std::atomic<std::uint64_t> large_{0}, most_reserved_{0};  // in bytes; relaxed: figures
  std::vector<c10::MempoolId_t> died_;                      // of which replays may still run; under the mutex
  bool adopts_ = true;
  mutable std::mutex mutex_;  // inside the session's locks
  std::unordered_map<const void*, Handle*> handles_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> kept_;
};

// Copies the bytes of a storage that is ours to `home`, to which it points from then on. Throws c10::Error where it
// cannot be brought into GPU memory.
void move_home(Session& session, c10::StorageImpl& storage, c10::DataPtr home);
// The bytes are there when it returns. Throws c10::Error.
void copy_home(GpuMemory& memory, c10::StorageImpl& storage, const c10::DataPtr& home);

}  // namespace vedette::adapter
