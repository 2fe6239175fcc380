#!/usr/bin/env bash
# Draws the pictures of README.md, docs/ and a landing page anew from a recording of a real run and from bench/results,
# each for light and for dark (an .svg follows its reader's theme).
#
#   scripts/pictures.sh RUN.vedette [VEDETTE]
#
#   RUN.vedette  the recording demo.vedette of scripts/demo.sh
#   VEDETTE      the command line to make the page with (default build/release/vedette)
#
# Needs Chromium and .venv, which scripts/setup.sh --tests makes ($PYTHON: another python3 with Pillow), and
# examples/train beside VEDETTE, whose counters `vedette top` shows.
set -euo pipefail
case "${1:-}" in "" | -h | --help) sed -n '2,11p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;; esac
recording=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vedette=$(realpath "${2:-build/release/vedette}") python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The page says which file it was made from: by its name alone.
(cd "$(dirname "$recording")" && "$vedette" report "$(basename "$recording")" -o "$folder/report.html")
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
picture() {
  "$python" tests/report/browser.py picture "$chromium" "$folder/report.html" "docs/$1.png" "$2" "$3" 1180 light
  "$python" tests/report/browser.py picture "$chromium" "$folder/report.html" "docs/$1-dark.png" "$2" "$3" 1180 dark
}
picture report-head '.bar' '#fit .card'
picture report-pages '#pages h2' '#pages .card'
picture report-timeline '#timeline h2' '#timeline .card'
picture report-budgets '#budgets h2' '#budgets .card'
"$python" scripts/picture.py "$recording" docs/step.svg
"$python" scripts/landing.py idea docs/landing-idea.svg
"$python" scripts/landing.py speed docs/landing-speed.svg
"$python" scripts/landing.py policies docs/landing-policies.svg
"$python" scripts/landing.py top docs/landing-top.svg "$(dirname "$vedette")"
"$python" scripts/landing.py report docs/landing-report.webp "$folder/report.html" "$chromium"
"$python" scripts/landing.py report docs/landing-report-dark.webp "$folder/report.html" "$chromium" dark
