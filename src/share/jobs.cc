#include "share/jobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/readable.h"

namespace vedette::share {
namespace {

constexpr std::array<std::string_view, 15> columns{"name",      "iterations", "iteration_s", "persistent", "ephemeral",
                                                   "recording", "arrival_s",  "start_s",     "busy",       "weight",
                                                   "want",      "floor",      "rest",        "profile",    ""};
constexpr double longest_s = 1e9;

std::string_view next_piece(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view piece = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  return piece;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional{value} : std::nullopt;
}

Error wrong(std::size_t line, const std::string& what) {
  return {Cause::malformed_input, "line " + std::to_string(line) + ": " + what};
}

using Cells = std::array<std::string_view, columns.size()>;  // of a line, by column; empty: not there

class Line {
 public:
  Line(const Cells& cells, std::size_t line) : cells_(cells), line_(line) {}

  std::string_view text(std::string_view column) const {
    const auto at = static_cast<std::size_t>(std::find(columns.begin(), columns.end(), column) - columns.begin());
    return cells_[at];
  }
  // The value is left alone where there is none.
  Line& read(std::string_view column, double least, double most, double& value) {
    const std::string_view words = text(column);
    if (words.empty() || error_) return *this;
    const auto read = number(words);
    if (!read || *read < least || *read > most)
      fail(column, words, "is no number from " + std::to_string(least) + " to " + std::to_string(most));
    else
      value = *read;
    return *this;
  }
  Line& read(std::string_view column, Nanoseconds& value) {
    double s = static_cast<double>(value.value) / 1e9;
    read(column, 0, longest_s, s);
    value = {static_cast<std::int64_t>(std::llround(s * 1e9))};
    return *this;
  }
  Line& read(std::string_view column, Bytes& value) {
    const std::string_view words = text(column);
    if (words.empty() || error_) return *this;
    const auto size = read_size(words);
    if (!size) fail(column, words, "is no size; write 512MiB, 8GiB, or bytes");
    value = size.value_or(value);
    return *this;
  }
  Line& read(std::string_view column, std::vector<StallAt>& points) {
    for (std::string_view rest = text(column); !error_ && !(rest = trimmed(rest)).empty();) {
      std::string_view point = next_piece(rest, ' ');
      const std::string_view whole = point;
      const auto size = read_size(next_piece(point, ':'));
      const auto stall = number(point);
      if (!size || !stall || *stall < 0 || *stall > longest_s || (!points.empty() && points.back().lease >= *size))
        fail(column, whole, "is no point of a profile; write sizes in ascending order with seconds, 2GiB:0.31");
      else
        points.push_back({*size, {std::llround(*stall * 1e9)}});
    }
    return *this;
  }
  Line& require(std::string_view column) {
    if (text(column).empty() && !error_) error_ = wrong(line_, "it has no " + std::string(column));
    return *this;
  }
  Line& check(bool holds, const std::string& what) {
    if (!holds && !error_) error_ = wrong(line_, what);
    return *this;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  void fail(std::string_view column, std::string_view words, const std::string& why) {
    error_ = wrong(line_, "'" + std::string(words) + "' of " + std::string(column) + " " + why);
  }
  const Cells& cells_;
  std::size_t line_;
  std::optional<Error> error_;
};

Result<std::vector<std::size_t>> read_head(std::string_view line) {
  std::vector<std::size_t> which;
  for (bool more = true; more;) {
    more = line.find(',') != std::string_view::npos;
    const std::string_view name = trimmed(next_piece(line, ','));
    const auto at = static_cast<std::size_t>(std::find(columns.begin(), columns.end() - 1, name) - columns.begin());
    if (name.empty() || at + 1 == columns.size())
      return wrong(1, "there is no column '" + std::string(name) +
                          "'; the first line names columns such as name, "
                          "iterations, iteration_s, persistent, ephemeral");
    if (std::find(which.begin(), which.end(), at) != which.end())
      return wrong(1, "column " + std::string(name) + " is named twice");
    which.push_back(at);
  }
  return which;
}

Result<ListedJob> read_job(const Cells& cells, std::size_t number_of_line, const OfRecording& of_recording) {
  Line line(cells, number_of_line);
  ListedJob job;
  if (const std::string_view path = line.text("recording"); !path.empty()) {
    auto recorded = of_recording(path);
    if (!recorded) return wrong(number_of_line, recorded.error().message);
    job = *std::move(recorded);
  } else {
    line.require("iteration_s").require("persistent").require("ephemeral");
  }
  double iterations = 0;
  line.require("name").require("iterations");
  job.name = line.text("name");
  line.read("iterations", 1, 1e12, iterations).read("iteration_s", job.iteration);
  line.read("persistent", job.persistent).read("ephemeral", job.ephemeral);
  line.read("arrival_s", job.arrival).read("start_s", job.start_up).read("busy", 0.001, 1, job.busy);
  line.read("weight", 1e-6, 1e6, job.weight);
  job.iterations = static_cast<std::uint64_t>(iterations);
  job.want = job.persistent + job.ephemeral;
  line.read("want", job.want);
  if (job.floor.value == 0) job.floor = job.want;
  line.read("floor", job.floor);
  job.rest = std::min(job.persistent, job.floor);
  line.read("rest", job.rest).read("profile", job.profile);
  line.check(job.iteration.value > 0, "an iteration takes longer than nothing");
  line.check(job.alone().value >= 0 && static_cast<double>(job.iteration.value) * iterations < longest_s * 1e9,
             "the job takes longer than 30 years");
  line.check(job.floor <= job.want && job.rest <= job.floor, "rest <= floor <= want does not hold");
  if (line.error()) return *line.error();
  return job;
}

}  // namespace

Result<std::vector<ListedJob>> parse_jobs(std::string_view csv, const OfRecording& of_recording) {
  auto head = read_head(next_piece(csv, '\n'));
  if (!head) return head.error();
  std::vector<ListedJob> jobs;
  std::uint64_t iterations = 0;
  for (std::size_t number = 2; !csv.empty(); ++number) {
    std::string_view line = trimmed(next_piece(csv, '\n'));
    if (line.empty() || line.starts_with('#')) continue;
    if (static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1 != head->size())
      return wrong(number, "it has another number of columns than the first line");
    Cells cells{};
    for (const std::size_t column : *head) cells[column] = trimmed(next_piece(line, ','));
    auto job = read_job(cells, number, of_recording);
    if (!job) return job.error();
    constexpr std::uint64_t most_iterations = 1'000'000'000;  // a minute of simulation
    if (job->iterations > most_iterations - std::min(iterations, most_iterations))
      return wrong(number, "the jobs take more than 1,000,000,000 iterations in all; give longer ones, fewer times");
    iterations += job->iterations;
    jobs.push_back(*std::move(job));
  }
  if (jobs.empty()) return wrong(2, "there is no job");
  return jobs;
}

std::string format_jobs(const std::vector<ListedJob>& jobs) {
  const auto seconds = [](Nanoseconds time) {
    constexpr std::int64_t in_second = 1'000'000'000;
    std::string digits = std::to_string(time.value / in_second);
    digits.push_back('.');
    digits.append(std::to_string(in_second + time.value % in_second), 1);
    return digits;
  };
  std::string text =
      "name,arrival_s,iterations,iteration_s,start_s,busy,weight,persistent,ephemeral,want,floor,rest,profile\n";
  for (const ListedJob& job : jobs) {
    text.append(job.name);
    for (const std::string& cell : {seconds(job.arrival), std::to_string(job.iterations), seconds(job.iteration),
                                    seconds(job.start_up), std::to_string(job.busy), std::to_string(job.weight)})
      text.append(",").append(cell);
    for (const Bytes bytes : {job.persistent, job.ephemeral, job.want, job.floor, job.rest})
      text.append(",").append(std::to_string(bytes.value));
    text.append(",");
    for (const StallAt& point : job.profile)
      text.append(std::to_string(point.lease.value)).append(":").append(seconds(point.stall)).append(" ");
    text.append("\n");
  }
  return text;
}

}  // namespace vedette::share
