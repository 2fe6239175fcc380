// A snapshot for PyTorch's memory viewer (pytorch.org/memory_viz; torch 2.11, torch/cuda/_memory_viz.py): the result of
// torch.cuda.memory._snapshot(), as a pickle. Device 0 is the fastest tier, device 1 the one below. A tensor is as many
// allocations as it has chunks, because these move one by one. Its stack frames are the tensor, and the op and layer of
// its birth.
//
// An evicted piece is freed on device 0 and allocated on device 1 when the move ends, and back. The moves of the step
// before tell where a persistent piece is when the step begins.
#include <algorithm>
#include <map>
#include <set>

#include "model/liveness.h"
#include "profiler/export_parts.h"
#include "profiler/pickle.h"

namespace vedette::exports {
namespace {

struct Piece {  // of a tensor, in one chunk
  std::uint32_t tensor = 0;
  std::uint64_t address = 0, bytes = 0;
  Span<Nanoseconds> life;
  bool to_the_end = false;  // it outlives the step
};

struct Happening {  // a piece appears on a device, or is gone from it
  Nanoseconds when;
  bool appears = false;
  std::uint32_t piece = 0;
  std::uint32_t device = 0;
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
  Snapshot(const report::Run& run, const report::Profile& profile)
      : run_(run), trace_(profile.trace), life_(lives(profile.trace)), clock_(clock_of(run, profile)) {
    cut(profile);
    happen();
  }

  void write(std::ostream& out) const {
    Pickle pickle(out);
    pickle.begin_dict();
    pickle.text("segments");
    pickle.begin_list();
    for (std::uint32_t device = 0; device < 2; ++device) write_segment(pickle, device);
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
        pieces_.push_back({t, at, stop - at, life, lasts});
        at = stop;
      }
      next = std::max(next, end);
    }
  }

  void happen() {
    std::set<std::uint32_t> away;  // chunks
    for (const report::MoveRow& m : run_.earlier_moves) note(m, away);
    std::vector<std::uint32_t> device(pieces_.size(), 0);
    for (std::uint32_t p = 0; p < pieces_.size(); ++p) {
      const bool begins_away = pieces_[p].to_the_end && run_.chunk.value > 0 &&
                               away.contains(static_cast<std::uint32_t>(pieces_[p].address / run_.chunk.value));
      device[p] = begins_away ? 1 : 0;
      all_.push_back({pieces_[p].life.begin, true, p, device[p]});
    }
    std::vector<report::MoveRow> moves = run_.moves;
    std::stable_sort(moves.begin(), moves.end(), [](const auto& a, const auto& b) { return a.ended < b.ended; });
    for (const report::MoveRow& m : moves) {
      const auto found = of_chunk_.find(m.chunk);
      if (found == of_chunk_.end() || m.ended >= clock_.end) continue;
      const std::uint32_t target = m.verb == "fetch" ? 0 : 1;
      for (const std::uint32_t p : found->second) {
        if (m.ended <= pieces_[p].life.begin || m.ended >= pieces_[p].life.end || device[p] == target) continue;
        all_.push_back({m.ended, false, p, device[p]});
        all_.push_back({m.ended, true, p, target});
        device[p] = target;
      }
    }
    for (std::uint32_t p = 0; p < pieces_.size(); ++p)
      if (!pieces_[p].to_the_end) all_.push_back({pieces_[p].life.end, false, p, device[p]});
    std::stable_sort(all_.begin(), all_.end(), [](const Happening& a, const Happening& b) {
      return a.when != b.when ? a.when < b.when : a.appears < b.appears;  // at one moment, room is made first
    });
    last_ = std::move(device);
  }

  static void note(const report::MoveRow& m, std::set<std::uint32_t>& away) {
    if (m.verb == "fetch")
      away.erase(static_cast<std::uint32_t>(m.chunk));
    else
      away.insert(static_cast<std::uint32_t>(m.chunk));
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

  // Pieces on the device when the step has ended, and the gaps between.
  void write_segment(Pickle& pickle, std::uint32_t device) const {
    std::vector<std::uint32_t> held;
    for (std::uint32_t p = 0; p < pieces_.size(); ++p)
      if (pieces_[p].to_the_end && last_[p] == device) held.push_back(p);
    std::sort(held.begin(), held.end(), [&](auto a, auto b) { return pieces_[a].address < pieces_[b].address; });
    std::erase_if(held, [&, end = std::uint64_t{0}](std::uint32_t p) mutable {
      if (pieces_[p].address < end) return true;  // damaged: two lie over each other
      end = pieces_[p].address + pieces_[p].bytes;
      return false;
    });
    if (held.empty()) return;
    const std::uint64_t begin = pieces_[held.front()].address,
                        end = pieces_[held.back()].address + pieces_[held.back()].bytes;
    std::uint64_t active = 0;
    for (const std::uint32_t p : held) active += pieces_[p].bytes;
    pickle.begin_dict();
    pickle.entry("device", device);
    pickle.entry("address", static_cast<std::int64_t>(begin));
    pickle.entry("total_size", static_cast<std::int64_t>(end - begin));
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
    std::uint64_t at = begin;
    for (const std::uint32_t p : held) {
      if (pieces_[p].address > at) write_block(pickle, at, pieces_[p].address - at, nullptr);
      write_block(pickle, pieces_[p].address, pieces_[p].bytes, &pieces_[p]);
      at = pieces_[p].address + pieces_[p].bytes;
    }
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
  Snapshot(source.run, **profile).write(out);
  return {};
}

}  // namespace vedette::exports
