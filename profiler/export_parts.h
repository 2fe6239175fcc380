// Shared by the exporters: text that other programs parse, and the profile that they write.
#pragma once
#include <ostream>
#include <string>
#include <string_view>

#include "profiler/exports.h"

namespace vedette::exports {

Result<void> to_trace(const ExportSource& source, std::ostream& out);
Result<void> to_perfetto(const ExportSource& source, std::ostream& out);
Result<void> to_memory_viz(const ExportSource& source, std::ostream& out);
Result<void> to_oracle_general(const ExportSource& source, std::ostream& out);
Result<void> to_minimalloc(const ExportSource& source, std::ostream& out);
Result<void> to_mqsim(const ExportSource& source, std::ostream& out);
Result<void> to_csv(const ExportSource& source, std::ostream& out);

// The profile of the shown step, or else the last one. Errors: malformed_input where none was recorded.
Result<const report::Profile*> profile_of(const report::Run& run);

std::string json_string(std::string_view text);  // with its quotes; bytes that are no UTF-8 become U+FFFD
std::string csv_field(std::string_view text);    // RFC 4180

// When each op of the profile began and ended, one after the other: as measured in the shown step, or, where that was
// not recorded, one op's time after the other's.
struct Clock {
  std::vector<Nanoseconds> began, ended;  // by op
  Nanoseconds start, end;                 // of the step
};
Clock clock_of(const report::Run& run, const report::Profile& profile);

}  // namespace vedette::exports
