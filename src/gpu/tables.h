// Tables: tensors of which a step touches few rows, too large for fast memory. Each lies in one range of addresses,
// with hot pieces in device memory and cold ones in pinned host memory, where kernels read and write them
// (cuda/mixed_range.h). No plan knows of them, and no op waits for one: every row has its address at any time.
//
// Which pieces are hot is counted: the numbers of the rows that an operator looks up are copied to the host behind it,
// and are counted when the copy has passed. A piece's score is the sum of its rows, half of it forgotten each step.
// Between two steps the pieces with the highest scores become the device's, within the budget for tables. One that is
// the device's leaves only for one with twice its score, so that a steady step moves nothing. Before a piece moves the
// host waits for the device.
//
// Thread rule: any thread in which the device's context is current; between_steps() in one at a time, with no op open.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "cuda/mixed_range.h"
#include "cuda/pinned_pool.h"
#include "cuda/points.h"
#include "vedette/gpu.h"

namespace vedette::detail {

class GpuTables {
 public:
  static constexpr Bytes small_piece = 2_MiB;
  // `budget`: of device memory, in whole pieces. Pieces are small, since a table's hot rows are few, and every copy of
  // one is a large one.
  static Result<std::unique_ptr<GpuTables>> make(std::shared_ptr<const cuda::Device>, Bytes budget,
                                                 Bytes piece = small_piece);
  ~GpuTables();  // waits for numbers of rows that are on their way
  GpuTables(const GpuTables&) = delete;
  GpuTables& operator=(const GpuTables&) = delete;

  // Memory of a new table, which outlives the session where the table does. Its contents are undefined.
  Result<GpuTable> allocate(Bytes bytes);
  // Work that is queued on `stream` looks rows up. Where the host lacks memory or the driver refuses they stay
  // uncounted.
  void looked_up(const GpuLookup& lookup, cuda::StreamHandle stream);
  Result<void> between_steps();
  GpuTableCounters counters() const;
  std::vector<GpuMemory::HotPart> hot_parts() const;  // see GpuMemory::table_parts()

 private:
  struct Table {
    cuda::MixedRange range;
    std::vector<double> scores;  // by piece
  };
  struct Copied {  // numbers of rows on their way to the host
    std::weak_ptr<Table> table;
    GpuLookup what;
    std::byte* numbers = nullptr;
    cuda::StreamPoint copied;
  };
  struct Piece {
    Table* table = nullptr;
    std::size_t number = 0;
    double rank = 0;
  };
  GpuTables(std::shared_ptr<const cuda::Device>, std::size_t most_pieces, Bytes piece);
  std::shared_ptr<Table> find(DeviceAddress address) const;
  void count(const Copied& lookup);
  bool count_what_passed();  // false: nothing had
  std::vector<Piece> by_rank(std::span<const std::shared_ptr<Table>> tables) const;
  Result<void> make_hot(std::span<const Piece> pieces);

  const std::shared_ptr<const cuda::Device> device_;
  const std::size_t most_;  // pieces of device memory
  const Bytes piece_;
  mutable std::mutex mutex_;  // over all that follows
  std::vector<std::weak_ptr<Table>> tables_;
  cuda::PinnedPool pool_;
  cuda::Points points_;
  std::vector<Copied> on_their_way_;
  GpuTableCounters counters_;
};

}  // namespace vedette::detail
