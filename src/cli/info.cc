// vedette info FILE: a recording's headline figures, and the layers of its profiles that touched most pages.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/readable.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "profiler/gpu_bytes.h"
#include "profiler/recording.h"

namespace vedette::cli {

namespace {

struct InfoOptions {
  std::string path;
  std::size_t layers = 10;
};

std::string milliseconds(Nanoseconds time) { return fmt::format("{:.1f} ms", static_cast<double>(time.value) / 1e6); }

void print_origin(const Headline& h, const std::string& path) {
  std::error_code ignored;
  std::uint64_t size = 0;
  for (const char* const suffix : {"", "-wal"}) {
    const auto part = std::filesystem::file_size(path + suffix, ignored);
    if (!ignored) size += part;
  }
  print("recording      {}, schema {}{}\n", readable({size}), h.origin.schema,
        h.complete ? "" : "; not closed: the run lives, or it was killed (all until its last flush is here)");
  const Origin& from = h.origin;
  if (!from.imported.empty()) print("imported from  {}\n", from.imported);
  if (!from.assumed.empty()) print("assumed        {}\n", from.assumed);
  if (!from.started.empty()) print("started        {} on {}, {}\n", from.started, from.cpu, from.kernel);
  if (!from.command.empty()) print("command        {}\n", from.command);
  if (!from.vedette.empty())
    print("made with      vedette {}{}{}\n", from.vedette, from.commit.empty() ? "" : " (" + from.commit + ")",
          from.libtorch.empty() ? "" : ", libtorch " + from.libtorch);
}

void print_headline(const Headline& h) {
  print("program        {}\npolicy         {}\n", h.program.empty() ? "(not named)" : h.program,
        h.policy.empty() ? "-" : h.policy);
  for (std::size_t i = 0; i < h.tiers.size(); ++i) {
    const bool endless = h.tiers[i].capacity.value >= std::uint64_t{1} << 59;
    print("tier {}         {}, {}{}\n", i, h.tiers[i].name, endless ? "no limit" : readable(h.tiers[i].capacity),
          h.tiers[i].addressable ? "" : ", reached by copying");
  }
  if (h.budget.value == 0 && h.chunk.value == 0)
    print("budget         -\n");  // of an imported trace none is known
  else
    print("budget         {} in chunks of {}\n", readable(h.budget), readable(h.chunk));
  print("steps          {} ({} warm-up, {} profiling, {} planned), median {}\n", h.steps, h.by_phase.warm_up,
        h.by_phase.profiling, h.by_phase.planned, milliseconds(h.median_step));
  print("peak           {}, resident at most {}\n", readable(h.peak), readable(h.resident_max));
  print("moved          {} in, {} out, {} dropped unwritten, {} moves\n", readable(h.moved.in), readable(h.moved.out),
        readable(h.moved.dropped), h.moves);
  if (h.moved.in_place.value > 0) print("in place       {} used by ops where they lay\n", readable(h.moved.in_place));
  if (h.tiers.size() > 2)
    print("               of it {} in and {} out with {}; {} between the slow tiers\n", readable(h.far.in),
          readable(h.far.out), h.tiers.back().name, readable(h.far.between));
  if (const GpuTableCounters& tables = h.origin.tables; tables.bytes() > 0)
    print("tables         {}, {} of it in GPU memory; {} rows looked up there, {} in the host's\n",
          readable({tables.bytes()}), readable({tables.device_bytes}), tables.rows_on_device, tables.rows_on_host);
  if (const GpuBytes& gpu = h.origin.gpu; gpu.on_device.value > 0) {
    print("on the GPU     {}, {} beside the budget{}\n", readable(gpu.on_device), readable(gpu.beside),
          parts_beside(gpu));
    print("host, locked   {}\n", words_of_locked(gpu));
  }
  print("stalls         {}, {} together\nfaults         {}\n", h.stall_count, milliseconds(h.stall_time), h.faults);
  print("profiles       {}\nplans          {}\n", h.profiles, h.plans);
  for (const std::string& reason : h.reasons) print("               {}\n", reason);
  if (h.dropped_events > 0) print("not recorded   {} events (the recorder's ring was full)\n", h.dropped_events);
}

void print_profile(Recording& recording, const ProfileInfo& profile, std::size_t limit) {
  print("\nprofile {} (step {}, bucket {}): layers by pages of {} bytes{}\n", profile.profile, profile.step,
        profile.bucket, profile.page_bytes.value, profile.tracked ? "" : " (pages were not tracked: whole operands)");
  print("{:>10} {:>10} {:>10} {:>8}  layer\n", "pages", "written", "touches", "hottest");
  const auto layers = recording.layers_by_pages(profile).value();
  for (std::size_t i = 0; i < layers.size() && i < limit; ++i) {
    const LayerTouches& layer = layers[i];
    print("{:>10} {:>10} {:>10} {:>8}  {}\n", layer.pages, layer.written_pages, layer.touches, layer.hottest,
          layer.phase.empty() ? "(ops without a layer)" : layer.name + ", " + layer.phase);
  }
  if (layers.size() > limit) print("{:>10} more layers\n", layers.size() - limit);
}

void print_info(const InfoOptions& options) {
  Recording recording = Recording::open(options.path).value();
  const Headline headline = recording.headline().value();
  print_origin(headline, options.path);
  print_headline(headline);
  if (const EnergyTotal energy = recording.energy().value(); energy.steps > 0)
    print("energy         {:.1f} J of {} in {} steps\n", static_cast<double>(energy.millijoules) / 1e3, energy.device,
          energy.steps);
  for (const ProfileInfo& profile : recording.profiles().value()) print_profile(recording, profile, options.layers);
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("info", "Sums up a recording");
  auto options = std::make_shared<InfoOptions>();  // shared: the callback is copied into the App
  verb->add_option("file", options->path, "a recording, for instance demo.vedette")->required();
  verb->add_option("--layers", options->layers, "rows per profile")->capture_default_str();
  verb->callback([options] { print_info(*options); });
}

}  // namespace vedette::cli
