"""Lists the tests that a ctest run skipped, with the reason each gave: skipped_tests.py JUNIT_FILE

The reason is what the test printed: GoogleTest writes "FILE:LINE: Skipped" and the message on the lines that follow.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree


def reason(output: str) -> str:
    found = re.search(r"Skipped\n(.*?)\n\s*\[  SKIPPED \]", output, re.DOTALL)
    return " ".join(found.group(1).split()) if found else "no reason given"


def main() -> None:
    by_reason: dict[str, list[str]] = {}
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            by_reason.setdefault(reason(case.findtext("system-out") or ""), []).append(case.get("name"))
    if not by_reason:
        print("\nNothing was skipped.")
        return
    print("\nNot tested here:")
    for why, names in by_reason.items():
        print(f"  {why}")
        for name in names:
            print(f"    {name}")


main()
