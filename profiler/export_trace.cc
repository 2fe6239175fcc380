// vedette-trace-1: the profiled step, without facts for which the format has no place (pages, sites).
#include "profiler/export_parts.h"

namespace vedette::exports {

namespace {

// Fields that the format requires and a recording may lack: names, a source, a time of at least a nanosecond.
Trace presentable(const report::Run& run, const report::Profile& profile) {
  Trace trace = profile.trace;
  const auto named = [](std::string& text, const std::string& otherwise) {
    if (text.empty()) text = otherwise;
  };
  named(trace.name, run.program.empty() ? "step" : run.program);
  if (!run.origin.assumed.empty()) {
    trace.source = run.origin.imported;
    trace.notes = {run.origin.assumed};
  }
  named(trace.source, "vedette");
  named(trace.device, "unknown");
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) named(trace.tensors[i].name, "tensor " + std::to_string(i));
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    named(trace.ops[i].name, "op " + std::to_string(i));
    if (trace.ops[i].time.value < 1) trace.ops[i].time = {1};
  }
  return trace;
}

}  // namespace

Result<void> to_trace(const ExportSource& source, std::ostream& out) {
  const auto profile = profile_of(source.run);
  if (!profile) return profile.error();
  Trace trace = presentable(source.run, **profile);
  const std::string text = format_trace(trace);
  // The reader of the format is its judge: a trace that it refuses is not written.
  if (const auto read = parse_trace(text); !read) {
    return Error{Cause::malformed_input,
                 source.run.path + ": its profile cannot be told as vedette-trace-1: " + read.error().message};
  }
  out << text;
  return {};
}

}  // namespace vedette::exports
