// The readers of recordings. An input is a list of damages to a sound recording, six bytes each. An even first byte
// ('b') changes a byte of the file: four bytes of position, then the value. An odd one ('w') replaces values of its
// tables: one byte each for table, column, row, kind and value. The sum of the input's bytes chooses the reader.
#include "profiler/recording.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "profiler/exports.h"
#include "profiler/schema.h"
#include "profiler/told_run.h"

namespace {

using namespace vedette;

// Files of a machine's memory cost no wait for a disk, which was nearly all of a run.
void prefer_files_in_memory() {
  if (::access("/dev/shm", R_OK | W_OK | X_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
}

const std::string& sound() {
  static const std::string bytes = [] {
    prefer_files_in_memory();
    std::ifstream file(told::record_run("sound.vedette", 2), std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  }();
  return bytes;
}

void replace_value(const std::string& path, const std::uint8_t* how) {
  constexpr const char* values[] = {
      "NULL",      "-1",    "0", "9223372036854775807", "-9223372036854775808", "4294967296", "'text'",
      "x'ff00fe'", "1e300", "2"};
  auto database = Database::open(path, Database::Mode::create);
  if (!database) return;
  const auto tables = recording_tables();
  const std::string table(tables[how[0] % tables.size()]);
  Statement rows(*database, "SELECT * FROM " + table);
  const int columns = rows.columns();
  if (columns == 0) return;
  const std::string column = rows.column_name(how[1] % columns),
                    value = how[3] % 2 == 0 ? values[how[4] % std::size(values)] : std::to_string(how[4]);
  const std::string which =
      how[2] % 4 == 0 ? "" : " WHERE " + rows.column_name(0) + " = " + std::to_string(how[2] % 4 - 1);
  database->run(
      ("PRAGMA ignore_check_constraints=1; UPDATE OR IGNORE " + table + " SET " + column + " = " + value + which)
          .c_str());
}

class Nowhere final : public std::streambuf {
  int overflow(int c) override { return c == EOF ? 0 : c; }
  std::streamsize xsputn(const char*, std::streamsize count) override { return count; }
};

// By its tables, or as one of the formats that it can be exported to.
void read_in_one_way(const std::string& path, std::size_t way) {
  const auto formats = export_formats();
  way %= formats.size() + 1;
  if (way < formats.size()) {
    Nowhere nowhere;
    std::ostream out(&nowhere);
    (void)export_recording(path, formats[way].name, {.table = "moves"}, out);
  } else if (auto recording = Recording::open(path)) {
    (void)recording->headline();
    if (const auto profiles = recording->profiles(); profiles && !profiles->empty())
      (void)recording->layers_by_pages(profiles->front());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes = sound();
  static const std::string path = told::fresh_path("damaged.vedette");
  std::vector<const std::uint8_t*> replaced;
  for (std::size_t at = 0; at + 6 <= size && replaced.size() < 4; at += 6) {
    const std::uint8_t* const damage = data + at + 1;
    if (data[at] % 2 != 0) {
      replaced.push_back(damage);
      continue;
    }
    const auto position = static_cast<std::size_t>(damage[0] | damage[1] << 8 | damage[2] << 16);
    bytes[position % bytes.size()] = static_cast<char>(damage[4]);
  }
  for (const char* const suffix : {"-wal", "-shm", "-journal"}) std::filesystem::remove(path + suffix);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  for (const std::uint8_t* const how : replaced) replace_value(path, how);
  read_in_one_way(path, std::accumulate(data, data + size, std::size_t{0}));
  return 0;
}
