// Shared by the experiments of `vedette reproduce`. Each is a function in a file of its own and one line in the table
// of reproduce.cc: it reads its inputs, computes its cells, and returns the files to write.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/cells.h"
#include "vedette/model.h"

namespace vedette::cli {

struct ReproduceOptions {
  std::string what, data, folder;  // the experiment, where its inputs lie, where its results go
  std::string machine = "a100-g10", policies = "all", only;  // only: names of inputs, with commas; empty: all
  std::vector<std::string> fast;                             // shares of the peak
  std::vector<std::string> recordings;                       // of sim-vs-live
  std::uint64_t seed = 1;
  std::uint32_t threads = 0;  // 0: one a processor
};

struct Input {  // a file that the results were made from
  std::string name, path, text, sha256;
};

struct Reproduced {
  std::string title, text;                                    // text: what the verb prints
  std::vector<std::pair<std::string, std::string>> files;     // by name, beside the page
  std::string body;                                           // of the page, without its heading
  std::vector<Input> inputs;                                  // their texts are not needed any more
  std::vector<std::pair<std::string, std::string>> machines;  // name, vedette-machine-1
  CellCounts counts;
};

Reproduced reproduce_g10(const ReproduceOptions& options);
Reproduced reproduce_policies(const ReproduceOptions& options);
Reproduced reproduce_pack(const ReproduceOptions& options);
Reproduced reproduce_sim_vs_live(const ReproduceOptions& options);

// Throws Failure where it cannot be read.
Input read_input(const std::string& name, const std::string& path);
// The first of `folders` below options.data that exists. Throws Failure, which says how the folder is made.
std::string data_folder(const ReproduceOptions& options, const std::vector<std::string>& folders);
// Sorted names of the files there with that ending, without it; those of options.only, where it names some.
std::vector<std::string> names_in(const ReproduceOptions& options, const std::string& folder,
                                  const std::string& ending);
std::string cells_folder(const ReproduceOptions& options);

double geometric_mean(const std::vector<double>& values);  // 0 of none

// Cells of a table as CSV, quoted where they have to be; each line with its end.
std::string csv_line(const std::vector<std::string>& cells);
// Tables whose first row is the heading; in HTML the first column is text.
std::string csv_table(const std::vector<std::vector<std::string>>& rows);
std::string markdown_table(const std::vector<std::vector<std::string>>& rows);
std::string html_table(const std::vector<std::vector<std::string>>& rows);

struct BarGroup {  // bars side by side under one name; a value below 0 is none
  std::string name;
  std::vector<double> values, published;  // published: a mark across the bar; empty: none
};
// Percent upwards from 0 to 100, groups to the right, a colour a series (SVG).
std::string bars_svg(const std::vector<std::string>& series, const std::vector<BarGroup>& groups,
                     const std::string& label);

}  // namespace vedette::cli
