"""`python -m vedette VERB ...` is the command-line tool `vedette`, which comes with this package."""

import os
import pathlib
import sys


def find_tool():
    """The command-line tool, and whether it is there."""
    tool = pathlib.Path(__file__).resolve().parent / "bin" / "vedette"
    if not tool.exists():
        tool = pathlib.Path(__file__).parent / "bin" / "vedette"  # a build folder, where this file is a link
    return tool, tool.exists()


def main():
    tool, is_there = find_tool()
    if not is_there:
        sys.exit(f"vedette: {tool} is missing from this installation; install the package again.")
    if sys.argv[1:] == ["doctor"]:
        from vedette import _for_torch

        print(_for_torch.sentence(), flush=True)
    os.execv(tool, ["vedette", *sys.argv[1:]])


if __name__ == "__main__":
    main()
