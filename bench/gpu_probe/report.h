// Rows of measurements: what was measured, how it spreads, or why it was refused.
//
// One call of Recorder::measure is a cell: it makes one row for each quantity it names. A cell that throws is refused:
// its quantities that have no sample say why, and the next cell goes on. Rows reach their file (one JSON object a line)
// as soon as they exist. Before a cell begins the file says so, and a reader knows in which cell the process died or
// hung.
#pragma once
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vedette::gpu {

using Json = nlohmann::ordered_json;

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
  std::size_t n = 0;
  bool operator==(const Spread&) const = default;
};
Spread spread(std::vector<double> samples);  // linear between neighbours; all 0 without samples

// What a cell measured so far.
class Cell {
 public:
  void sample(const std::string& quantity, double value) { samples_[quantity].push_back(value); }
  void fact(const std::string& quantity, Json value) { facts_[quantity] = std::move(value); }

 private:
  friend class Recorder;
  std::map<std::string, std::vector<double>> samples_;
  std::map<std::string, Json> facts_;
};

struct Quantity {
  const char* name = "";
  const char* unit = "";  // "" for facts
};

class Recorder {
 public:
  struct Options {
    std::string file;          // "": nowhere
    std::uint64_t skip = 0;    // cells at the start that are not run again
    double cell_limit_s = 60;  // a cell that takes longer ends the process with status timed_out
    bool quick = false;        // few repetitions, small sizes: for tests
  };
  static constexpr int timed_out = 124;

  explicit Recorder(Options options);
  bool quick() const { return options_.quick; }
  int repetitions(int usual) const { return options_.quick ? 3 : usual; }

  // `point` is the number of the question in bench/gpu_hour/README.md, `name` a noun, `setting` what distinguishes
  // cells of that name.
  void measure(int point, const std::string& name, const Json& setting, const std::vector<Quantity>& quantities,
               const std::function<void(Cell&)>& body);

  const Json& rows() const { return rows_; }

 private:
  void write(const Json& line);
  Options options_;
  std::ofstream file_;
  std::uint64_t cells_ = 0;
  Json rows_ = Json::array();
};

// The rows of `lines` (a Recorder's file); the cell that had begun and not ended is one row, refused for `why`. Adds
// the number of cells that the file knows to `cells`.
Json rows_of(std::istream& lines, const std::string& why, std::uint64_t& cells);

std::string table(const Json& rows);  // as text, one row a line, in columns, under a heading for each point

}  // namespace vedette::gpu
