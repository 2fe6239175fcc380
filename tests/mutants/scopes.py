"""Where functions and classes of C++ sources laid out by clang-format begin and end."""

import re
from dataclasses import dataclass

CLASS = re.compile(r"(?:template .*)?(?:class|struct)\s+(?:\w+\([^)]*\)\s+)?([\w:]+)[^;]*[{,]$")
METHOD = re.compile(r"  (?! )(?!//)[^=;]*?([~\w]+)\(")
CALLED = re.compile(r"([~\w:]+(?:<[\w, :]*>)?)\(")
NO_FUNCTION = ("}", "#", "//", "namespace", "using", "public", "private")


@dataclass
class Scope:
    name: str  # Class, Class::method or function
    begin: int
    end: int  # lines, half open


def last_of_head(lines: list[str], begin: int, end: int) -> int:
    """The line that ends a declaration, or opens its body."""
    while begin < end - 1 and not lines[begin].rstrip().endswith(("{", "}", ";")):
        begin += 1
    return begin


def methods(name: str, lines: list[str], begin: int, end: int) -> list[Scope]:
    """With a body in the class."""
    found, at = [], begin
    while at < end:
        method = METHOD.match(lines[at])
        if method is None:
            at += 1
            continue
        head = last_of_head(lines, at, end)
        after = head + 1
        if lines[head].rstrip().endswith("{"):
            while after < end and not lines[after].startswith("  }"):
                after += 1
            after += 1
        if not lines[head].rstrip().endswith(";"):
            found.append(Scope(f"{name}::{method[1]}", at, after))
        at = after
    return found


def scopes(text: str) -> list[Scope]:
    lines = [re.sub(r"\s+// .*$", "", line) for line in text.split("\n")]
    found, at = [], 0
    while at < len(lines):
        line, after = lines[at], at + 1
        if line == "" or line[0].isspace() or line.startswith(NO_FUNCTION):
            at = after
            continue
        if klass := CLASS.match(line):
            while after < len(lines) and lines[after] != "};":
                after += 1
            found.append(Scope(klass[1], at, after + 1))
            found += methods(klass[1], lines, at + 1, after)
        elif "(" in line:
            head = last_of_head(lines, at, len(lines))
            after = head + 1
            if lines[head].rstrip().endswith("{"):
                while after < len(lines) and not lines[after].startswith("}"):
                    after += 1
                after += 1
            if not lines[head].rstrip().endswith(";"):
                found += [Scope(name, at, after) for name in CALLED.findall(" ".join(lines[at : head + 1]))[:1]]
        at = after
    return found
