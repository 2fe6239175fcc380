// A snapshot for PyTorch's memory viewer (pytorch.org/memory_viz; torch 2.11, torch/cuda/_memory_viz.py): the result of
// torch.cuda.memory._snapshot(), as a pickle. Device 0 is the fastest tier, device 1 the one below. A tensor is as many
// allocations as it has chunks, because these move one by one. Its stack frames are the tensor, and the op and layer of
// its birth.
//
// An evicted piece is freed on device 0 and allocated on device 1 when the move ends, and back. A chunk's first move of
// the step tells where its persistent pieces are when the step begins, else its last one before.
//
// Readers replay the events backwards from the blocks at the end, and each must find its place in a segment. So there
// is a segment for each run of addresses that was ever used. They add up what is allocated, too. A piece is born when
// its op begins, or as soon after that as the budget has room for it: the op waited for an evict before it allocated.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "model/liveness.h"
#include "profiler/export_parts.h"
#include "profiler/pickle.h"

namespace vedette::exports {
namespace {

struct Piece {  // of a tensor, in one chunk
  std::uint32_t tensor = 0;
  std::uint64_t address = 0, bytes = 0;
  Span<Nanoseconds> life;
  bool to_the_end = false;    // it outlives the step
  std::uint32_t last_op = 0;  // unless it does
  std::uint32_t birth_op = 0;
};

struct Happening {  // a piece appears on a device, or is gone from it
  Nanoseconds when;
  bool appears = false;
  std::uint32_t piece = 0;
  std::uint32_t device = 0;
  // Of what happens at one moment: births of op i have 3 i, moves in it 3 i + 1, deaths after it 3 i + 2.
  std::uint64_t turn = 0;
};

std::string site_of(const Trace& trace, std::uint32_t tensor, const std::vector<Span<OpIndex>>& life) {
  const Tensor& t = trace.tensors[tensor];
  if (!t.site.op.empty()) return t.site.op;
  const std::uint32_t birth = life[tensor].begin.value;
  return t.persistent || birth >= trace.ops.size() ? std::string("before the step") : trace.ops[birth].name;
}

std::string layer_of(const Trace& trace, std::uint32_t tensor, const std::vector<Span<OpIndex>>& life) {
  const Tensor& t = trace.tensors[tensor];
  if (!t.site.layer.empty()) return t.site.layer;
  const std::uint32_t birth = life[tensor].begin.value;
  if (t.persistent || birth >= trace.ops.size() || !trace.ops[birth].layer) return "no layer";
  return trace.layers[trace.ops[birth].layer->value].name;
}

class Snapshot {
 public:
  Snapshot(const ExportSource& source, const report::Profile& profile)
      : run_(source.run), trace_(profile.trace), life_(lives(profile.trace)), clock_(clock_of(run_, profile)) {
    cut(profile);
    happen(away_before(source));
    bear_where_there_is_room();
  }

  void write(std::ostream& out) const {
    Pickle pickle(out);
    pickle.begin_dict();
    pickle.text("segments");
    pickle.begin_list();
    for (std::uint32_t device = 0; device < 2; ++device) write_segments(pickle, device);
    pickle.end_list();
    pickle.text("device_traces");
    pickle.begin_list();
    for (std::uint32_t device = 0; device < 2; ++device) write_trace(pickle, device);
    pickle.end_list();
    pickle.text("allocator_settings");
    pickle.begin_dict();
    pickle.entry("backend", "vedette");
    for (std::size_t k = 0; k < run_.machine.tiers.size(); ++k)
      pickle.entry("device " + std::to_string(k), run_.machine.tiers[k].name);
    pickle.entry("budget_bytes", static_cast<std::int64_t>(run_.budget.value));
    pickle.end_dict();
    pickle.end_dict();
    pickle.end();
  }

 private:
  // Without places tensors lie one behind the other and are one piece each.
  void cut(const report::Profile& profile) {
    std::uint64_t next = 0;
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      const bool empty = life_[t].begin == life_[t].end || trace_.tensors[t].bytes.value == 0;
      if (empty || life_[t].end.value > trace_.ops.size()) continue;
      const bool lasts = trace_.tensors[t].persistent;
      const Span<Nanoseconds> life{lasts ? clock_.start : clock_.began[life_[t].begin.value],
                                   lasts ? clock_.end : clock_.ended[life_[t].end.value - 1]};
      const bool placed = t < profile.places.size() && profile.places[t].has_value() && run_.chunk.value > 0;
      const std::uint64_t begin = placed ? *profile.places[t] : next, bytes = trace_.tensors[t].bytes.value,
                          end = begin + bytes;
      // A unit that moves as a whole is one piece, under the number of its first chunk.
      const bool whole = !placed || run_.machine.whole_tensors;
      for (std::uint64_t at = begin; at < end;) {
        const std::uint64_t stop = whole ? end : std::min(end, (at / run_.chunk.value + 1) * run_.chunk.value);
        if (placed) of_chunk_[at / run_.chunk.value].push_back(static_cast<std::uint32_t>(pieces_.size()));
        pieces_.push_back({.tensor = t,
                           .address = at,
                           .bytes = stop - at,
                           .life = life,
                           .to_the_end = lasts,
                           .last_op = lasts ? 0 : life_[t].end.value - 1,
                           .birth_op = lasts ? 0 : life_[t].begin.value});
        at = stop;
      }
      next = std::max(next, end);
    }
  }

  // Chunks whose last move before the step took them away.
  static std::set<std::uint64_t> away_before(const ExportSource& source) {
    std::set<std::uint64_t> away;
    const report::StepRow* const shown = source.run.shown_step();
    if (shown == nullptr) return away;
    Statement ask(source.database, "SELECT chunk, verb FROM moves WHERE step < ? ORDER BY ended_ns");
    for (ask.ask(shown->step); ask.row();) note(static_cast<std::uint64_t>(ask.integer(0)), ask.text(1), away);
    return away;
  }
  static void note(std::uint64_t chunk, std::string_view verb, std::set<std::uint64_t>& away) {
    if (verb == "fetch")
      away.erase(chunk);
    else
      away.insert(chunk);
  }

  std::uint64_t turn_at(Nanoseconds when) const {
    const auto next = std::upper_bound(clock_.began.begin(), clock_.began.end(), when);
    const auto ops = static_cast<std::uint64_t>(next - clock_.began.begin());
    return ops == 0 ? 0 : 3 * (ops - 1) + 1;
  }

  void happen(std::set<std::uint64_t> away) {
    std::vector<report::MoveRow> moves = run_.moves;
    std::stable_sort(moves.begin(), moves.end(), [](const auto& a, const auto& b) { return a.ended < b.ended; });
    std::set<std::uint64_t> moved;
    for (const report::MoveRow& m : moves)
      if (moved.insert(m.chunk).second) note(m.chunk, m.verb == "fetch" ? "evict" : "fetch", away);
    std::vector<std::uint32_t> device(pieces_.size(), 0);
    for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
      const Piece& piece = pieces_[p];
      device[p] = piece.to_the_end && run_.chunk.value > 0 && away.contains(piece.address / run_.chunk.value) ? 1 : 0;
      all_.push_back({piece.life.begin, true, p, device[p], std::uint64_t{3} * piece.birth_op});
    }
    for (const report::MoveRow& m : moves) {
      const auto found = of_chunk_.find(m.chunk);
      if (found == of_chunk_.end() || m.ended >= clock_.end) continue;
      const std::uint32_t target = m.verb == "fetch" ? 0 : 1;
      for (const std::uint32_t p : found->second) {
        if (m.ended <= pieces_[p].life.begin || m.ended >= pieces_[p].life.end || device[p] == target) continue;
        all_.push_back({m.ended, false, p, device[p], turn_at(m.ended)});
        all_.push_back({m.ended, true, p, target, turn_at(m.ended)});
        device[p] = target;
      }
    }
    for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
      if (!pieces_[p].to_the_end)
        all_.push_back({pieces_[p].life.end, false, p, device[p], std::uint64_t{3} * pieces_[p].last_op + 2});
    }
    std::stable_sort(all_.begin(), all_.end(), [](const Happening& a, const Happening& b) {
      return std::tuple(a.when, a.turn, a.appears) < std::tuple(b.when, b.turn, b.appears);  // room is made first
    });
    last_ = std::move(device);
  }

  // Puts births off, at most until their op has ended or the piece moves.
  void bear_where_there_is_room() {
    const std::uint64_t budget = run_.budget.value == 0 ? ~std::uint64_t{0} : run_.budget.value;
    std::uint64_t held = 0;
    std::deque<Happening> unborn;
    std::vector<Happening> told;
    const auto tell = [&](const Happening& h) {
      told.push_back(h);
      if (h.device == 0) held += h.appears ? pieces_[h.piece].bytes : -pieces_[h.piece].bytes;
    };
    const auto bear = [&](Nanoseconds when) {
      unborn.front().when = std::max(unborn.front().when, when);
      tell(unborn.front());
      unborn.pop_front();
    };
    for (const Happening& next : all_) {
      const auto due = [&](const Happening& birth) {
        const bool op_has_ended = clock_.ended[pieces_[birth.piece].birth_op] < next.when || birth.turn + 1 < next.turn;
        return op_has_ended || birth.piece == next.piece;
      };
      while (std::any_of(unborn.begin(), unborn.end(), due))
        bear(std::min(next.when, clock_.ended[pieces_[unborn.front().piece].birth_op]));
      const bool birth = next.appears && next.device == 0 && next.turn % 3 == 0 && !pieces_[next.piece].to_the_end;
      if (birth)
        unborn.push_back(next);
      else
        tell(next);
      while (!unborn.empty() && held + pieces_[unborn.front().piece].bytes <= budget) bear(next.when);
    }
    while (!unborn.empty()) bear(clock_.ended[pieces_[unborn.front().piece].birth_op]);
    all_ = std::move(told);
  }

  void write_frames(Pickle& pickle, std::uint32_t tensor) const {
    const Tensor& t = trace_.tensors[tensor];
    const std::string frames[][2] = {{t.name.empty() ? "tensor " + std::to_string(tensor) : t.name, "tensor"},
                                     {site_of(trace_, tensor, life_), "op"},
                                     {layer_of(trace_, tensor, life_), "layer"}};
    pickle.text("frames");
    pickle.begin_list();
    for (const auto& [name, file] : frames) {
      pickle.begin_dict();
      pickle.entry("name", valid(name));
      pickle.entry("filename", file);
      pickle.entry("line", tensor);
      pickle.end_dict();
    }
    pickle.end_list();
  }

  // Readers decode text as UTF-8 and give up on other bytes.
  static std::string valid(const std::string& text) {
    std::string clean;
    for (const char c : text) clean += static_cast<unsigned char>(c) < 0x80 && c != '\0' ? c : '?';
    return clean;
  }

  void write_trace(Pickle& pickle, std::uint32_t device) const {
    pickle.begin_list();
    for (const Happening& h : all_) {
      if (h.device != device) continue;
      for (const char* const action : {"free_requested", "free_completed", "alloc"}) {
        if ((std::string_view(action) == "alloc") != h.appears) continue;
        pickle.begin_dict();
        pickle.entry("action", action);
        pickle.entry("addr", static_cast<std::int64_t>(pieces_[h.piece].address));
        pickle.entry("size", static_cast<std::int64_t>(pieces_[h.piece].bytes));
        pickle.entry("stream", 0);
        pickle.entry("time_us", (h.when - clock_.start).value / 1000);
        write_frames(pickle, pieces_[h.piece].tensor);
        pickle.end_dict();
      }
    }
    pickle.end_list();
  }

  // Pieces on the device when the step has ended, by address; none lies over another, as in a damaged file.
  std::vector<std::uint32_t> held_at_the_end(std::uint32_t device) const {
    std::vector<std::uint32_t> held;
    for (std::uint32_t p = 0; p < pieces_.size(); ++p)
      if (pieces_[p].to_the_end && last_[p] == device) held.push_back(p);
    std::sort(held.begin(), held.end(), [&](auto a, auto b) { return pieces_[a].address < pieces_[b].address; });
    std::erase_if(held, [&, end = std::uint64_t{0}](std::uint32_t p) mutable {
      if (pieces_[p].address < end) return true;
      end = pieces_[p].address + pieces_[p].bytes;
      return false;
    });
    return held;
  }

  // Runs of addresses at which something was on the device.
  std::vector<Span<std::uint64_t>> used(std::uint32_t device) const {
    std::map<std::uint64_t, std::uint64_t> ends;  // by begin
    for (const Happening& h : all_) {
      const Piece& piece = pieces_[h.piece];
      if (h.device == device) ends[piece.address] = std::max(ends[piece.address], piece.address + piece.bytes);
    }
    std::vector<Span<std::uint64_t>> runs;
    for (const auto& [begin, end] : ends) {
      if (runs.empty() || runs.back().end < begin)
        runs.push_back({begin, end});
      else
        runs.back().end = std::max(runs.back().end, end);
    }
    return runs;
  }

  void write_segments(Pickle& pickle, std::uint32_t device) const {
    const std::vector<std::uint32_t> held = held_at_the_end(device);
    auto next = held.begin();
    for (const Span<std::uint64_t> run : used(device)) {
      const auto first = next;
      while (next != held.end() && pieces_[*next].address < run.end) ++next;
      write_segment(pickle, device, run, {first, next});
    }
  }

  void write_segment(Pickle& pickle, std::uint32_t device, Span<std::uint64_t> run,
                     std::span<const std::uint32_t> held) const {
    std::uint64_t active = 0;
    for (const std::uint32_t p : held) active += pieces_[p].bytes;
    pickle.begin_dict();
    pickle.entry("device", device);
    pickle.entry("address", static_cast<std::int64_t>(run.begin));
    pickle.entry("total_size", static_cast<std::int64_t>(run.end - run.begin));
    for (const char* const key : {"allocated_size", "active_size", "requested_size"})
      pickle.entry(key, static_cast<std::int64_t>(active));
    pickle.entry("stream", 0);
    pickle.entry("segment_type", "large");
    pickle.text("segment_pool_id");
    pickle.pair(0, 0);
    pickle.text("is_expandable");
    pickle.boolean(false);
    pickle.text("frames");
    pickle.begin_list();
    pickle.end_list();
    pickle.text("blocks");
    pickle.begin_list();
    std::uint64_t at = run.begin;
    for (const std::uint32_t p : held) {
      if (pieces_[p].address > at) write_block(pickle, at, pieces_[p].address - at, nullptr);
      write_block(pickle, pieces_[p].address, pieces_[p].bytes, &pieces_[p]);
      at = pieces_[p].address + pieces_[p].bytes;
    }
    if (run.end > at) write_block(pickle, at, run.end - at, nullptr);
    pickle.end_list();
    pickle.end_dict();
  }

  void write_block(Pickle& pickle, std::uint64_t address, std::uint64_t bytes, const Piece* piece) const {
    pickle.begin_dict();
    pickle.entry("address", static_cast<std::int64_t>(address));
    pickle.entry("size", static_cast<std::int64_t>(bytes));
    pickle.entry("requested_size", static_cast<std::int64_t>(piece != nullptr ? bytes : 0));
    pickle.entry("state", piece != nullptr ? "active_allocated" : "inactive");
    if (piece != nullptr) {
      write_frames(pickle, piece->tensor);
    } else {
      pickle.text("frames");
      pickle.begin_list();
      pickle.end_list();
    }
    pickle.end_dict();
  }

  const report::Run& run_;
  const Trace& trace_;
  const std::vector<Span<OpIndex>> life_;
  const Clock clock_;
  std::vector<Piece> pieces_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> of_chunk_;
  std::vector<Happening> all_;
  std::vector<std::uint32_t> last_;  // by piece: its device when the step has ended
};

}  // namespace

Result<void> to_memory_viz(const ExportSource& source, std::ostream& out) {
  const auto profile = profile_of(source.run);
  if (!profile) return profile.error();
  Snapshot(source, **profile).write(out);
  return {};
}

}  // namespace vedette::exports
