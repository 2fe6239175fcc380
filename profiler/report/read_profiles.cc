// Reads the profiles of a recording: tensors, layers, ops and their operands, places, and the pages of one.
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <vector>

#include "profiler/report/reader.h"

namespace vedette::report {

namespace {

constexpr std::int64_t most_samples = 1'000'000;  // of one page in one tick; monitors take some tens

template <class Enum>
std::optional<Enum> named(std::string_view name, std::initializer_list<std::string_view> names) {
  int value = 0;
  for (const std::string_view each : names) {
    if (each == name) return static_cast<Enum>(value);
    ++value;
  }
  return std::nullopt;
}

std::optional<Phase> phase_named(std::string_view name) {
  return named<Phase>(name, {"forward", "backward", "optimizer"});
}
std::optional<TensorKind> kind_named(std::string_view name) {
  return named<TensorKind>(name, {"weight", "gradient", "optimizer", "activation", "workspace", "input", "constant"});
}

std::vector<std::int64_t> shape_of(const std::string& text) {  // "64x3x7x7"
  std::vector<std::int64_t> shape;
  for (std::size_t at = 0; at < text.size() && shape.size() < 16;) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    char* stop = nullptr;
    const long long value = std::strtoll(text.c_str() + at, &stop, 10);
    if (stop != text.c_str() + at) shape.push_back(value);
    at = end + 1;
  }
  return shape;
}

void read_tensors(Reader& reader, Run& run, Profile& profile) {
  Statement ask(
      reader.database(),
      "SELECT tensor, name, bytes, kind, persistent, shape, site_layer, site_op FROM tensors WHERE profile = ?"
      " ORDER BY tensor");
  std::uint64_t total = 0;
  for (ask.ask(profile.profile); reader.row(ask);) {
    if (reader.natural(ask, 0, "a tensor's number") != profile.trace.tensors.size())
      return reader.refuse("tensors are missing");
    Tensor& t = profile.trace.tensors.emplace_back();
    t.name = ask.text(1);
    t.bytes = {reader.natural(ask, 2, "a tensor's size")};
    total += t.bytes.value;
    if (total > static_cast<std::uint64_t>(largest) || (run.chunk.value > 0 && total / run.chunk.value > most_chunks))
      return reader.refuse("the sizes of its tensors cannot be");
    const auto kind = kind_named(ask.text(3));
    if (!kind) return reader.refuse("a tensor is of a kind that is not known");
    t.kind = *kind;
    t.persistent = ask.integer(4) != 0;
    t.shape = shape_of(ask.text(5));
    t.site = {.layer = ask.text(6), .op = ask.text(7)};
    reader.keep(t, {t.name, t.site.layer, t.site.op});
  }
}

void read_ops(Reader& reader, Profile& profile) {
  Statement layers(reader.database(), "SELECT layer, name, phase FROM layers WHERE profile = ? ORDER BY layer");
  for (layers.ask(profile.profile); reader.row(layers);) {
    const auto phase = phase_named(layers.text(2));
    if (!phase || reader.natural(layers, 0, "a layer's number") != profile.trace.layers.size())
      return reader.refuse("its layers cannot be");
    profile.trace.layers.push_back({.name = layers.text(1), .phase = *phase});
    reader.keep(profile.trace.layers.back(), {profile.trace.layers.back().name});
  }
  Statement ops(reader.database(),
                "SELECT op, name, layer, phase, time_ns, workspace_bytes FROM ops WHERE profile = ? ORDER BY op");
  std::int64_t total = 0;
  for (ops.ask(profile.profile); reader.row(ops);) {
    const auto phase = phase_named(ops.text(3));
    if (!phase || reader.natural(ops, 0, "an op's number") != profile.trace.ops.size())
      return reader.refuse("its ops cannot be");
    Op& op = profile.trace.ops.emplace_back();
    op.name = ops.text(1);
    op.phase = *phase;
    op.time = {static_cast<std::int64_t>(reader.natural(ops, 4, "an op's time"))};
    if ((total += op.time.value) > largest) return reader.refuse("the times of its ops cannot be");
    op.workspace = {reader.natural(ops, 5, "an op's workspace")};
    if (!ops.is_null(2)) op.layer = LayerIndex{reader.below(ops, 2, profile.trace.layers.size(), "layer")};
    reader.keep(op, {op.name});
  }
}

void read_operands(Reader& reader, Profile& profile) {
  Trace& trace = profile.trace;
  Statement ask(reader.database(), "SELECT op, role, tensor FROM operands WHERE profile = ? ORDER BY op, role, tensor");
  for (ask.ask(profile.profile); reader.row(ask);) {
    const std::uint32_t op = reader.below(ask, 0, trace.ops.size(), "op");
    const TensorIndex tensor{reader.below(ask, 2, trace.tensors.size(), "tensor")};
    if (reader.bad()) return;
    const std::string role = ask.text(1);
    reader.keep(tensor);
    (role == "read"    ? trace.ops[op].reads
     : role == "write" ? trace.ops[op].writes
                       : trace.ops[op].frees)
        .push_back(tensor);
  }
}

void read_places(Reader& reader, Run& run, Profile& profile) {
  Statement ask(reader.database(), "SELECT tensor, begin_byte FROM tensor_places WHERE profile = ?");
  for (ask.ask(profile.profile); reader.row(ask);) {
    const std::uint32_t t = reader.below(ask, 0, profile.trace.tensors.size(), "tensor");
    const std::uint64_t at = reader.natural(ask, 1, "a tensor's place");
    if (reader.bad() || run.chunk.value == 0) return;
    profile.places.resize(profile.trace.tensors.size());
    profile.places[t] = at;
  }
}

void read_stacks(Reader& reader, Profile& profile) {
  Statement ask(
      reader.database(),
      "SELECT tensor, frame FROM tensor_stacks JOIN stacks USING(stack) WHERE profile = ? ORDER BY tensor, position");
  for (ask.ask(profile.profile); reader.row(ask);) {
    const std::uint32_t t = reader.below(ask, 0, profile.trace.tensors.size(), "tensor");
    if (reader.bad()) return;
    profile.stacks.resize(profile.trace.tensors.size());
    reader.keep(std::string(), {profile.stacks[t].emplace_back(ask.text(1))});
  }
}

void read_notes(Reader& reader, Profile& profile) {
  Statement ask(reader.database(), "SELECT text FROM notes WHERE profile = ? ORDER BY position");
  for (ask.ask(profile.profile); reader.row(ask);)
    reader.keep(std::string(), {profile.trace.notes.emplace_back(ask.text(0))});
}

}  // namespace

void read_pages(Reader& reader, Profile& profile) {
  Trace& trace = profile.trace;
  Statement ask(reader.database(),
                "SELECT op, tensor, first_page, end_page, read, written, samples FROM page_accesses WHERE profile = ?");
  const std::uint64_t page = trace.page_bytes.value;
  for (ask.ask(profile.profile); reader.row(ask);) {
    PageAccess& a = trace.pages.emplace_back();
    reader.keep(a);
    a.op = {reader.below(ask, 0, trace.ops.size(), "op")};
    a.tensor = {reader.below(ask, 1, trace.tensors.size(), "tensor")};
    a.pages = {reader.natural(ask, 2, "a page"), reader.natural(ask, 3, "a page")};
    if (reader.bad()) return;
    const std::uint64_t pages = (trace.tensors[a.tensor.value].bytes.value + page - 1) / page;
    if (a.pages.begin >= a.pages.end || a.pages.end > pages)
      return reader.refuse("pages outside of their tensor were touched");
    a.read = ask.integer(4) != 0;
    a.written = ask.integer(5) != 0;
    if (ask.is_null(6) && profile.samples.empty()) continue;
    profile.samples.resize(trace.pages.size());  // exact samples among them count as seen by none
    profile.samples.back() = static_cast<std::uint32_t>(std::clamp<std::int64_t>(ask.integer(6), 0, most_samples));
    reader.keep(profile.samples.back());
  }
  // Recorders write them in this order; SQLite would sort them anew, on disk.
  const auto before = [](const PageAccess& x, const PageAccess& y) {
    return std::tie(x.op, x.tensor, x.pages) < std::tie(y.op, y.tensor, y.pages);
  };
  if (std::is_sorted(trace.pages.begin(), trace.pages.end(), before)) return;
  if (profile.samples.empty()) return std::sort(trace.pages.begin(), trace.pages.end(), before);
  std::vector<std::uint32_t> order(trace.pages.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](auto x, auto y) { return before(trace.pages[x], trace.pages[y]); });
  const std::vector<PageAccess> pages = std::exchange(trace.pages, {});
  const std::vector<std::uint32_t> samples = std::exchange(profile.samples, {});
  for (const std::uint32_t i : order) trace.pages.push_back(pages[i]), profile.samples.push_back(samples[i]);
}

void read_profiles(Reader& reader, Run& run) {
  Statement ask(
      reader.database(),
      "SELECT profile, step, bucket, name, source, device, page_bytes, tracked FROM profiles ORDER BY profile");
  for (ask.ask(); reader.row(ask);) {
    Profile& p = run.profiles.emplace_back();
    p.profile = ask.integer(0);
    p.step = reader.natural(ask, 1, "a profile's step");
    p.bucket = ask.text(2);
    p.trace.name = ask.text(3);
    p.trace.source = ask.text(4);
    p.trace.device = ask.text(5);
    p.trace.page_bytes = {reader.natural(ask, 6, "the size of a page")};
    p.tracked = ask.integer(7) != 0;
    reader.keep(p, {p.bucket, p.trace.name, p.trace.source, p.trace.device});
    if (p.trace.page_bytes.value == 0) return reader.refuse("its pages have no size");
    read_tensors(reader, run, p);
    if (!reader.bad()) read_ops(reader, p);
    if (!reader.bad()) read_operands(reader, p);
    if (!reader.bad()) read_places(reader, run, p);
    if (!reader.bad()) read_stacks(reader, p);
    if (!reader.bad()) read_notes(reader, p);
  }
}

}  // namespace vedette::report
