// Wrong uses of the command, by their kind: one sentence with what to do and a status; the recording is as it was, and
// no file is left. Two rows differ only where the program reaches another check.
#include <unistd.h>

#include <filesystem>

#include "cli/sentences.h"
#include "support/store_file.h"

namespace vedette::wrong_uses_test {
namespace {

struct Row {
  const char* kind;
  std::string line;  // @ is a trace, % a recording, & a folder
  int status;
  const char* says;
};

std::string with_files(const std::string& line, const std::string& recording, const std::string& folder) {
  std::string made;
  for (const char c : line)
    made += c == '@' ? toy("chain4") : c == '%' ? recording : c == '&' ? folder : std::string(1, c);
  return made;
}

const Row rows[] = {
    {"wrong type", "report /etc/passwd --text", 1, "/etc/passwd is not a recording of vedette"},
    {"wrong type", "check @ @", 1, "the plan is a vedette-trace-1; a vedette-plan-1 is wanted here"},
    {"wrong type", "import /etc/passwd -o &/made.vedette", 1, "/etc/passwd: it is neither a vedette-trace-1"},
    {"wrong type", "share @", 1, "the first line names columns such as name, iterations, iteration_s"},
    {"wrong type", "set one 2GiB", 2, "pid = one (vedette set --help says more)"},
    {"wrong unit", "fits @ --card h100 --memory lots", 1, "'lots' is no size; write 20% (of the trace's peak), 512MiB"},
    {"wrong unit", "daemon --memory lots", 1, "--memory 'lots' is no size of 16 MiB or more; write 8GiB"},
    {"wrong unit", "check % --stall 5ms", 1, "--stall 5ms is no share of a step; write 5%"},
    {"wrong unit", "fits @ --card h100 --step soon", 1, "--step soon is no time; write 845ms or 1.2s"},
    {"wrong path", "report /nowhere", 1, "/nowhere: no such file"},
    {"wrong path", "plan @ -o /nowhere/plan.json", 1,
     "plan.json cannot be written: No such file or directory; name another"},
    {"wrong path", "plan @ --policy ./none.so", 1, "./none.so cannot be opened; is the path right?"},
    {"wrong path", "plan @ --machine nowhere", 1, "there is no machine 'nowhere', neither a preset"},
    {"wrong path", "races -- /nowhere/program", 1, "there is no program /nowhere/program"},
    {"wrong order", "fits @ --card h100 --machine a100-g10", 1, "--card and --machine name two; leave one out"},
    {"wrong order", "plan @ --time=50ms --policy g10", 1, "--time is for the policy vedette"},
    {"wrong order", "check % --peak 1GiB --fast-memory 2GiB", 1, "leave --machine and --fast-memory out"},
    {"wrong order", "export % --to memory-viz --steps 5 -o &/made", 1, "--steps goes with --to perfetto; leave it out"},
    {"wrong order", "export % --to perfetto --table ops -o &/made", 1, "--table goes with --to csv; leave it out"},
    {"wrong order", "export % --to csv --object 4KiB -o &/made", 1, "--object goes with --to oracle-general"},
    {"wrong order", "ask % --sql 'select 1' --group x=y", 1, "--sql groups its rows itself; leave --group out"},
    {"wrong order", "share salus --machine nowhere", 1, "--machine is for recordings in a list of jobs"},
    {"missing privilege", "plan @ -o /proc/plan.json", 1, "/proc/plan.json cannot be written: "},
    {"missing privilege", "set 1 2GiB", 1,
     "process 1 does not follow memory pressure; open its guard with pressure = true"},
    {"full", "plan @ -o /dev/full", 1, "/dev/full cannot be written: No space left on device; name another file"},
    {"full", "export % --to perfetto -o /dev/full", 1, "the disk is full, or the reader has gone"},
    {"too small", "plan @ --fast-memory 1", 1,
     "the largest op of chain4 needs 576.0 KiB (589824 bytes) of fast memory at once"},
    {"too small", "plan @ --fast-memory 0", 1, "'0' is no size; write 20% (of the trace's peak)"},
    {"twice", "plan @ --policy g10 --policy sentinel", 2, "--policy: At Most 1 required but received 2"},
    {"twice", "fits % --also % --batch 16,16", 1, "--also needs --batch A,B: the two batch sizes"},
    {"forgotten", "info", 2, "file is required (vedette info --help says more)"},
    {"forgotten", "daemon", 2, "--memory is required (vedette daemon --help says more)"},
    {"forgotten", "ask % --sql", 2, "--sql: 1 required"},
    {"forgotten", "races --", 2, "name a program: vedette races -- python train.py"},
    {"forgotten", "races -- /bin/true", 1, "the program made no call of CUDA, so that nothing was looked at"},
    {"forgotten", "nothing", 2, "there is no verb 'nothing'; there are"},
};

TEST(WrongUses, AreRefusedWithWhatToDoAndChangeNothing) {
  const std::string recording = told::record_run("wrong_uses.vedette", 2), before = text_of(recording),
                    folder = told::fresh_path("wrong_uses");
  std::filesystem::create_directory(folder);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.kind + (": " + row.line));
    expect_one_sentence(vedette(with_files(row.line, recording, folder)), row.status, row.says);
  }
  EXPECT_EQ(text_of(recording), before);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace vedette::wrong_uses_test
