// From a trace to a recording: one profile, and one step in which the ops ran one after the other.
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/readable.h"
#include "profiler/foreign.h"
#include "profiler/imports.h"
#include "profiler/tables.h"

namespace vedette {
namespace {

constexpr std::uint64_t only_bucket = 1, only_step = 1;
constexpr Bytes most_unpacked{std::uint64_t{2} << 30};  // a small file may unpack to anything

struct Imported {
  Trace trace;
  std::vector<Span<Nanoseconds>> when;
  std::vector<std::uint64_t> samples;
  std::string format;
};

Imported one_after_the_other(Trace trace) {
  Imported imported{.trace = std::move(trace), .format = "vedette-trace-1"};
  Nanoseconds now;
  for (const Op& op : imported.trace.ops) {
    imported.when.push_back({now, now + op.time});
    now += op.time;
  }
  return imported;
}

void write(Tables& tables, const Imported& imported) {
  const Trace& trace = imported.trace;
  tables.meta("schema", std::to_string(recording_schema));
  tables.meta("program", trace.name);
  tables.meta("imported", imported.format);
  if (has_assumptions(trace)) tables.meta("assumed", trace.notes.front());
  tables.meta("complete", "1");
  tables.profile(only_step, only_bucket, trace, imported.samples);
  StepRecord step{.step = only_step, .phase = "imported", .bucket = std::nullopt};
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const NameEvent name = NameEvent::of(i + 1, trace.ops[i].name);
    tables.event(name);
    tables.event(OpEvent{
        .step = only_step, .op = {i}, .name = i + 1, .began = imported.when[i].begin, .ended = imported.when[i].end});
    step.ended = std::max(step.ended, imported.when[i].end);
  }
  step.counters.ops = trace.ops.size();
  step.counters.peak_bytes.value = peak_bytes(trace).value;
  tables.step(step);
}

Result<Imported> parse(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return Error{Cause::malformed_input, "it is empty"};
  if (text[first] == '[') {
    auto sampled = parse_damon(text);
    if (!sampled) return sampled.error();
    return Imported{std::move(sampled->trace), std::move(sampled->when), std::move(sampled->samples), "damon"};
  }
  if (is_foreign(text)) {
    auto trace = parse_foreign(text);
    if (!trace) return trace.error();
    Imported imported = one_after_the_other(*std::move(trace));
    imported.format = imported.trace.source;
    return imported;
  }
  if (text[first] != '{')
    return Error{
        Cause::unsupported,
        "it is neither a vedette-trace-1 (a JSON object), nor DAMON's records in JSON (a list), nor a trace or "
        "memory snapshot of PyTorch"};
  auto trace = parse_trace(text);
  if (!trace) return trace.error();
  return one_after_the_other(*std::move(trace));
}

}  // namespace

Result<std::string> unpacked(std::string packed) {
  const bool by_gzip = packed.starts_with("\x1f\x8b");
  if (!by_gzip && !packed.starts_with('x')) return packed;
  z_stream stream{};
  constexpr int either = 15 + 32;  // zlib's own header or gzip's
  if (inflateInit2(&stream, either) != Z_OK) return Error{Cause::system, "zlib cannot begin"};
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  std::size_t left = packed.size();
  std::string text, part(std::size_t{1} << 20, '\0');
  int state = Z_OK;
  while (state == Z_OK && text.size() <= most_unpacked.value) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min<std::size_t>(left, 1u << 30));
      left -= stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    state = inflate(&stream, Z_NO_FLUSH);
    text.append(part, 0, part.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (text.size() > most_unpacked.value)
    return Error{Cause::unsupported, "it unpacks to more than " + readable(most_unpacked)};
  if (state != Z_STREAM_END)
    return Error{Cause::malformed_input, std::string("it begins as what ") + (by_gzip ? "gzip" : "damo") +
                                             " compresses, and cannot be unpacked: it is damaged or cut"};
  return text;
}

Result<void> import_text(std::string_view text, const std::string& output) {
  auto imported = parse(text);
  if (!imported) return imported.error();
  auto made = create_recording(output);
  if (!made) return made.error();
  Tables tables(std::move(made->database));
  tables.begin();
  write(tables, *imported);
  tables.commit();
  tables.close();
  if (const auto& failure = tables.database().failure()) return *failure;
  return {};
}

Result<void> import_recording(const std::string& input, const std::string& output) {
  std::error_code unknown;
  if (std::filesystem::is_directory(input, unknown))
    return Error{Cause::system, input + ": is a directory; name a file in it"};
  std::ifstream file(input, std::ios::binary);
  if (!file) return Error{Cause::system, input + ": cannot be read; is the path right?"};
  auto text = unpacked({std::istreambuf_iterator<char>(file), {}});
  if (file.bad()) return Error{Cause::system, input + ": cannot be read"};
  if (!text) return Error{text.error().cause, input + ": " + text.error().message};
  auto imported = import_text(*text, output);
  if (!imported) return Error{imported.error().cause, input + ": " + imported.error().message};
  return {};
}

}  // namespace vedette
