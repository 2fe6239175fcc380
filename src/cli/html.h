// Pages of HTML: the head that all have, with its style, and text that is escaped. Pure.
#pragma once
#include <string>

namespace vedette::cli {

// Of every page, light and dark as its reader's theme.
constexpr const char* page_style =
    R"(:root{--ink:#16202b;--soft:#55616f;--line:#dde2e8;--page:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9aa7b4;--line:#2a343f;--page:#0e1318}}
body{font:14px sans-serif;margin:1.5em auto;padding:0 1em;max-width:84em;
color:var(--ink);background:var(--page);overflow-wrap:anywhere}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;overflow-wrap:normal}
td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
svg{display:block;width:100%;height:auto;color:var(--ink)}svg text{font:11px sans-serif;fill:currentColor}
svg .grid{stroke:var(--line)}dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.2em 1em}
dt{color:var(--soft)}dd{margin:0}code{font-size:.95em}
)";

// The begin of a page, up to its heading: what has `title`, and `style` after what all pages have.
inline std::string page_head(const std::string& title, const std::string& style) {
  return R"(<!doctype html><html lang="en"><meta charset="utf-8">)"
         R"(<meta name="viewport" content="width=device-width,initial-scale=1">)"
         "\n<meta name=\"color-scheme\" content=\"light dark\"><title>" +
         title + "</title>\n<style>" + page_style + style + "</style>\n";
}

inline std::string html_escaped(const std::string& words) {
  std::string safe;
  for (const char c : words) {
    if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (c == '&')
      safe += "&amp;";
    else if (c == '"')
      safe += "&quot;";
    else if (c == '\'')
      safe += "&#39;";
    else
      safe += c;
  }
  return safe;
}

}  // namespace vedette::cli
