// The page's parts, as they were when this was built. assets.cc is made by CMake (assets.cc.in).
#pragma once
#include <string_view>

namespace vedette::report {

std::string_view page_html() noexcept;
std::string_view page_css() noexcept;
std::string_view page_js() noexcept;  // with the places of the next four, {map}, {prices}, {timeline} and {beside}
std::string_view map_js() noexcept;
std::string_view prices_js() noexcept;
std::string_view timeline_js() noexcept;
std::string_view beside_js() noexcept;
std::string_view charts_script() noexcept;  // Plotly; empty: it was not there

}  // namespace vedette::report
