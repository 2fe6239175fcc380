// A report as one HTML document: the page's parts and the charts' library, embedded when this was built, around the report's JSON.
#include "profiler/report/assets.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

// A script element ends at the first "</script", whatever the JSON around it means, and "<!--" changes how it is read: no "<" is left.
std::string in_script(const std::string& json) {
  std::string safe;
  safe.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<') safe += "\\u003c";
    else safe += c;
  }
  return safe;
}

}  // namespace

bool page_has_charts() noexcept { return !charts_script().empty(); }

std::string format_page(const Report& report, const Report* other) {
  const std::string_view page = page_html();
  std::string out;
  std::size_t at = 0;
  const auto fill = [&](std::string_view mark, std::string_view with) {
    const std::size_t found = page.find(mark, at);
    if (found == std::string_view::npos) return;
    out.append(page, at, found - at).append(with);
    at = found + mark.size();
  };
  fill("/*{style}*/", page_css());
  fill("{data}", in_script(format_json(report, other)));
  fill("/*{charts}*/", charts_script());
  fill("/*{script}*/", page_js());
  return out.append(page, at, page.size() - at);
}

}  // namespace vedette::report
