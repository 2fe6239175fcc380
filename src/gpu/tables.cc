// Counting rows, and which pieces are hot: see tables.h.
#include "gpu/tables.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/readable.h"

namespace vedette::detail {
namespace {

constexpr Bytes most_pinned = 16_MiB;  // for numbers of rows that are on their way
constexpr double kept = 0.5;           // of a score, each step
constexpr double stays = 2;            // times its score is the rank of a piece that is in device memory
using Kind = cuda::MixedRange::Kind;

std::int64_t number_at(const std::byte* numbers, std::uint64_t index, std::uint32_t bytes) {
  std::int64_t number = 0;
  if (bytes == sizeof number) {
    std::memcpy(&number, numbers + index * bytes, sizeof number);
    return number;
  }
  std::int32_t small = 0;
  std::memcpy(&small, numbers + index * bytes, sizeof small);
  return small;
}

}  // namespace

Result<std::unique_ptr<GpuTables>> GpuTables::make(std::shared_ptr<const cuda::Device> device, Bytes budget,
                                                   Bytes piece) {
  if (device->attribute(cuda::Attribute::host_numa_memory_management_supported).value_or(0) == 0)
    return Error{.cause = Cause::unsupported,
                 .message = device->name() +
                            " cannot map the host's memory beside its own; use a driver for CUDA 12.2 "
                            "or newer, or leave table_memory out"};
  const auto whole = cuda::MixedRange::piece_of(*device, piece);
  if (!whole) return whole.error();
  const std::size_t most = budget.value / whole->value;
  if (most == 0)
    return Error{.cause = Cause::unsupported,
                 .message = "table_memory of " + readable_exactly(budget) + " holds no piece of a table; give it " +
                            readable_exactly(*whole) + " or more"};
  return std::unique_ptr<GpuTables>(new GpuTables(std::move(device), most, *whole));
}

GpuTables::GpuTables(std::shared_ptr<const cuda::Device> device, std::size_t most_pieces, Bytes piece)
    : device_(std::move(device)),
      most_(most_pieces),
      piece_(piece),
      pool_(device_, {.most = most_pinned, .piece = 1_MiB}),
      points_(device_) {}

GpuTables::~GpuTables() {
  const cuda::Current current(*device_);
  for (const Copied& each : on_their_way_) {
    if (!points_.wait(each.copied) && !device_->synchronize()) static_cast<void>(device_->synchronize());
  }
}

Result<GpuTable> GpuTables::allocate(Bytes bytes) {
  const cuda::Current current(*device_);
  auto range = cuda::MixedRange::make(device_, bytes, piece_);
  if (!range) return range.error();
  const std::size_t pieces = range->pieces();
  const DeviceAddress address = range->address();
  // Queued work may use the table until the device has been waited for; a refused wait leaves no other way.
  std::shared_ptr<Table> table(new Table{.range = std::move(*range), .scores = std::vector<double>(pieces)},
                               [device = device_](Table* dead) {
                                 const cuda::Current there(*device);
                                 if (!device->synchronize()) static_cast<void>(device->synchronize());
                                 delete dead;
                               });
  const std::lock_guard lock(mutex_);
  tables_.push_back(table);
  return GpuTable{.address = address, .memory = std::move(table)};
}

std::shared_ptr<GpuTables::Table> GpuTables::find(DeviceAddress address) const {
  for (const std::weak_ptr<Table>& each : tables_) {
    auto table = each.lock();
    if (table && table->range.address() == address) return table;
  }
  return nullptr;
}

void GpuTables::looked_up(const GpuLookup& lookup, cuda::StreamHandle stream) {
  const Bytes bytes{lookup.count * lookup.number_bytes};
  if (bytes.value == 0 || lookup.numbers == 0) return;
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  const auto table = find(lookup.table);
  if (!table) return;
  auto numbers = pool_.take(bytes);
  if (!numbers && count_what_passed()) numbers = pool_.take(bytes);
  if (!numbers) return;
  const auto queued = device_->copy(stream, reinterpret_cast<cuda::Address>(*numbers), lookup.numbers, bytes);
  if (!queued) return pool_.give_back(*numbers, bytes);
  const auto copied = points_.mark(points_.number_of(stream));
  if (copied)
    on_their_way_.push_back({.table = table, .what = lookup, .numbers = *numbers, .copied = *copied});
  else if (device_->calls().stream_synchronize(stream) == cuda::success)
    pool_.give_back(*numbers, bytes);  // else it stays taken: the copy may still write it
}

void GpuTables::count(const Copied& lookup) {
  const auto table = lookup.table.lock();
  const GpuLookup& what = lookup.what;
  for (std::uint64_t i = 0; table && i < what.count; ++i) {
    std::int64_t row = number_at(lookup.numbers, i, what.number_bytes);
    if (row < 0) row += static_cast<std::int64_t>(what.rows);
    const std::uint64_t piece = (what.first + static_cast<std::uint64_t>(row) * what.row_bytes) / piece_.value;
    if (row < 0 || piece >= table->scores.size()) continue;  // the operator says so
    table->scores[piece] += 1;
    ++(table->range.kind(piece) == Kind::device ? counters_.rows_on_device : counters_.rows_on_host);
  }
  pool_.give_back(lookup.numbers, {what.count * what.number_bytes});
}

bool GpuTables::count_what_passed() {
  return std::erase_if(on_their_way_, [&](const Copied& each) {
           const auto passed = points_.passed(each.copied);
           if (!passed || !*passed) return false;
           count(each);
           return true;
         }) > 0;
}

// The highest first; equal ones as they lie.
std::vector<GpuTables::Piece> GpuTables::by_rank(std::span<const std::shared_ptr<Table>> tables) const {
  std::vector<Piece> all;
  for (const auto& table : tables) {
    for (std::size_t i = 0; i < table->scores.size(); ++i)
      all.push_back({.table = table.get(),
                     .number = i,
                     .rank = table->scores[i] * (table->range.kind(i) == Kind::device ? stays : 1)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Piece& a, const Piece& b) { return a.rank > b.rank; });
  return all;
}

// Departures come first: device memory never holds more than the budget.
Result<void> GpuTables::make_hot(std::span<const Piece> pieces) {
  const auto is_there = [](const Piece& each) { return each.table->range.kind(each.number) == Kind::device; };
  std::size_t there = static_cast<std::size_t>(std::count_if(pieces.begin(), pieces.end(), is_there));
  std::size_t last = pieces.size();
  for (std::size_t i = 0; i < std::min(most_, pieces.size()) && pieces[i].rank > 0; ++i) {
    if (is_there(pieces[i])) continue;
    if (there == most_) {
      do --last;
      while (!is_there(pieces[last]));  // behind the first `most_`, since one of these is not there
      if (auto left = pieces[last].table->range.move(pieces[last].number, Kind::host); !left) return left;
      --there;
    }
    if (auto came = pieces[i].table->range.move(pieces[i].number, Kind::device); !came) return came;
    ++there;
    counters_.most_device_bytes = std::max(counters_.most_device_bytes, there * piece_.value);
    ++counters_.moves;
  }
  return {};
}

Result<void> GpuTables::between_steps() {
  const cuda::Current current(*device_);
  std::vector<std::shared_ptr<Table>> tables;
  const std::lock_guard lock(mutex_);
  std::erase_if(tables_, [](const std::weak_ptr<Table>& each) { return each.expired(); });
  for (const std::weak_ptr<Table>& each : tables_) {
    if (auto table = each.lock()) tables.push_back(std::move(table));
  }
  static_cast<void>(count_what_passed());
  const std::vector<Piece> pieces = by_rank(tables);
  const bool moves =
      std::any_of(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(std::min(most_, pieces.size())),
                  [](const Piece& each) { return each.rank > 0 && each.table->range.kind(each.number) == Kind::host; });
  Result<void> done;
  if (moves) {
    done = device_->synchronize();
    if (done) static_cast<void>(count_what_passed());  // where they lay
    if (done) done = make_hot(pieces);
  }
  for (const auto& table : tables) {
    for (double& score : table->scores) score *= kept;
  }
  return done;
}

std::vector<GpuMemory::HotPart> GpuTables::hot_parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<GpuMemory::HotPart> parts;
  for (const std::weak_ptr<Table>& each : tables_) {
    const auto table = each.lock();
    bool goes_on = false;
    for (std::size_t i = 0; table && i < table->range.pieces(); ++i) {
      const bool hot = table->range.kind(i) == Kind::device;
      if (hot && !goes_on) parts.push_back({.address = table->range.address() + i * piece_.value});
      if (hot) parts.back().bytes += piece_.value;
      goes_on = hot;
    }
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return parts;
}

GpuTableCounters GpuTables::counters() const {
  const std::lock_guard lock(mutex_);
  GpuTableCounters counters = counters_;
  for (const std::weak_ptr<Table>& each : tables_) {
    const auto table = each.lock();
    for (std::size_t i = 0; table && i < table->range.pieces(); ++i)
      (table->range.kind(i) == Kind::device ? counters.device_bytes : counters.host_bytes) += piece_.value;
  }
  return counters;
}

}  // namespace vedette::detail
