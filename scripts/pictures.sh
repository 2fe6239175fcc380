#!/usr/bin/env bash
# Draws the pictures of README.md and docs/ anew from a recording of a real run, each for light and for dark.
#
#   scripts/pictures.sh RUN.vedette [VEDETTE]
#
#   RUN.vedette  the recording demo.vedette of scripts/demo.sh
#   VEDETTE      the command line to make the page with (default build/release/vedette)
#
# Needs Chromium (scripts/setup.sh installs it) and the python3 in PATH or in $PYTHON. docs/step.svg follows its
# reader's theme.
set -euo pipefail
case "${1:-}" in "" | -h | --help) sed -n '2,10p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 0 ;; esac
recording=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vedette=$(realpath "${2:-build/release/vedette}") python=${PYTHON:-python3}
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
