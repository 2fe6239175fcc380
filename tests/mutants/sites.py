"""Where C++ sources laid out by clang-format could have a small bug, and the lines that have it when asked.

The kinds are KINDS. Asserts, messages (statements with a text in them), constants and functions of compile time have
none. Each is written so that the program has both forms, and planted.h chooses: `if (!planted) statement;`.
"""

import re
from dataclasses import dataclass

from scopes import last_of_head, scopes

KINDS = ("delete", "negate", "less", "one", "wait", "early")
IS = "::vedette_planted::is<@>()"
ASSERTS = re.compile(r"\b(VEDETTE_ASSERT|static_assert|assert|abort|unreachable)\b|\"|R\"|^#")
FIXED = re.compile(r"\b(constexpr|consteval|template|enum|alignas|case|operator|concept|requires|noreturn)\b")
NO_STATEMENT = re.compile(
    r"(const|constexpr|static|auto|thread_local|struct|class|enum|using|typedef|namespace|friend|public|private"
    r"|protected|default|delete|extern|inline|mutable|virtual|explicit|return|throw|goto|else|do|try|catch|unsigned"
    r"|co_\w+)\b|[\[}{~]"
    r"|[A-Za-z_][\w:]*(?:<[^;=()]*>)?(?:::\w+)*\s*[&*]*\s+[&*]*\w+\s*(?:=|\(|\{|;|\[|,)")
WAITS = re.compile(r"wait\w*\(|\bnotify_(?:one|all)\(|\bwake\w*\(|\bjoin\(|\bsynchroni[sz]e\w*\(|\bfence\w*\("
                   r"|\b(?:un)?lock\(|event\w*(?:\([^()]*\))?->record\(|\bevent_record\(|\bmark\(")
LOCK = re.compile(r"(?:const )?std::(?:lock_guard|scoped_lock)(?:<[^>]*>)? (\w+)[({]([^,;]+)[)}];")
CONDITION = re.compile(r"\b(if|while) \(")
DECLARES = re.compile(r"(const\s|auto\b|[A-Za-z_][\w:]*(?:<.*>)?[&*]*\s+[&*]*\w+\s*=\s)")
COMPARES = re.compile(r" (<=?|>=?) ")
LITERAL = re.compile(r"(?<![\w.'<\[])\d{1,6}(?:u|ul|ull|l|ll|z|uz)?(?![\w.'\]])", re.IGNORECASE)
ENDS = re.compile(r"[,;?{}]| && | \|\| | [=!]= | [-+*/|&^]?= | [&|^] | : |\b(?:return|case|co_return) ")
OPENS, CLOSES = "([{", ")]}"


@dataclass(frozen=True)
class Site:
    path: str
    begin: int
    end: int  # lines from 0, half open
    kind: str
    lines: tuple[str, ...]  # that stand there instead, as many, with @ for the number
    before: str
    after: str

    def overlaps(self, other: "Site") -> bool:
        return self.path == other.path and self.begin < other.end and other.begin < self.end


def blank(text: str) -> list[str]:
    """The lines of code: of the same lengths, without comments and without what texts say."""
    def gone(found: re.Match) -> str:
        if found[0].startswith("/"):
            return re.sub(r"[^\n]", " ", found[0])
        return found[0][0] + re.sub(r"[^\n]", "_", found[0][1:-1]) + found[0][-1]
    return re.sub(r"//[^\n]*|/\*.*?\*/|R\"\((?s:.*?)\)\"|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'", gone, text,
                  flags=re.DOTALL).split("\n")


def depth(text: str) -> int:
    return sum(text.count(each) for each in "([") - sum(text.count(each) for each in ")]")


class Reader:
    def __init__(self, path: str, text: str) -> None:
        self.path, self.lines, self.code = path, text.split("\n"), blank(text)
        self.found: list[Site] = []
        for scope in scopes(text):
            head = last_of_head(self.code, scope.begin, scope.end)
            self.head = " ".join(self.code[scope.begin:head + 1])
            if "(" in self.head and self.head.rstrip().endswith("{") and not FIXED.search(self.head):
                self.read(scope.name, head + 1, scope.end - 1)

    def add(self, kind: str, begin: int, end: int, lines: list[str], before: str, after: str) -> None:
        self.found.append(Site(self.path, begin, end, kind, tuple(lines), " ".join(before.split()),
                               " ".join(after.split())))

    def read(self, name: str, begin: int, end: int) -> None:
        indent = len(self.lines[begin]) - len(self.lines[begin].lstrip())
        last = "{"
        for at in range(begin, end):
            code = self.code[at].strip()
            if code == "":
                continue
            if last[-1] in ";{}:" and not last.startswith("case"):
                if statement := self.statement(at, end):
                    self.read_statement(at, statement)
                first = len(self.lines[at]) - len(self.lines[at].lstrip()) == indent
                if first and not re.match(r"return\b|[})]|VEDETTE|static_assert|else\b", code):
                    self.return_early(name, at)
            self.read_line(at)
            last = code

    def statement(self, at: int, end: int) -> int:
        """The line after the statement that begins here, or 0 for a head of a block."""
        open_ones = braces = 0
        for line in range(at, end):
            code = self.code[line].rstrip()
            open_ones += depth(code)
            braces += code.count("{") - code.count("}")
            if open_ones <= 0 and braces <= 0 and code.endswith(";"):
                return line + 1
            if open_ones <= 0 and (braces < 0 or code.endswith(("{", ":"))):
                return 0
        return 0

    def read_statement(self, at: int, end: int) -> None:
        text, code = "\n".join(self.lines[at:end]), " ".join(" ".join(self.code[at:end]).split())
        after = next((each.strip() for each in self.code[end:] if each.strip()), "")
        if any(ASSERTS.search(each.strip()) for each in self.code[at:end]):
            return
        if after.startswith("else") or "else" in code:
            return
        if lock := LOCK.fullmatch(code):
            taken = f"std::unique_lock {lock[1]}({lock[2]}, std::defer_lock); if (!{IS}) {lock[1]}.lock();"
            return self.add("wait", at, end, self.spread(at, end, taken), text, "")
        if NO_STATEMENT.match(code):
            return
        kind = "wait" if WAITS.search(code) else "delete"
        lines = [f"if (!{IS}) {self.lines[at].strip()}", *self.lines[at + 1:end]]
        self.add(kind, at, end, lines, text, "")

    def spread(self, at: int, end: int, text: str) -> list[str]:
        return [text, *[""] * (end - at - 1)]

    def return_early(self, name: str, at: int) -> None:
        klass, _, method = name.rpartition("::")
        bare = method.startswith("~") or method == klass.rpartition("::")[2]
        value = "" if bare or re.search(rf"\bvoid (?:[\w:]+::)?{re.escape(method)}\(", self.head) else " {}"
        line = self.lines[at]
        self.add("early", at, at + 1, [f"if ({IS}) {{ return{value}; }} {line}"], line, f"return{value}; {line}")

    def read_line(self, at: int) -> None:
        code, line = self.code[at], self.lines[at]
        if ASSERTS.search(code.strip()) or FIXED.search(code):
            return
        for found in CONDITION.finditer(code):
            self.negate(at, found.end())
        for found in COMPARES.finditer(code):
            self.compare(at, found)
        for found in LITERAL.finditer(code):
            if re.search(r"\w+ \w+\[[^\]]*$|[<\"]\s*$", code[:found.start()]):
                continue
            for sign in "+-" if found[0].strip("uUlLzZ") != "0" else "+":
                changed = f"({found[0]} {sign} {IS})"
                short = line[:found.start()] + f"({found[0]} {sign} 1)" + line[found.end():]
                self.add("one", at, at + 1, [line[:found.start()] + changed + line[found.end():]], line, short)

    def negate(self, at: int, begin: int) -> None:
        code, line, level = self.code[at], self.lines[at], 1
        for end in range(begin, len(code)):
            level += (code[end] in OPENS) - (code[end] in CLOSES)
            if level == 1 and code[end] == ";":
                begin = end + 2
            if level == 0:
                break
        else:
            return
        told = line[begin:end]
        if DECLARES.match(told):
            return
        planted = f"{line[:begin]}{IS} != static_cast<bool>({told}){line[end:]}"
        self.add("negate", at, at + 1, [planted], line, f"{line[:begin]}!({told}){line[end:]}")

    def compare(self, at: int, found: re.Match) -> None:
        code, line = self.code[at], self.lines[at]
        begin, end = self.left(code, found.start()), self.right(code, found.end())
        if begin < 0 or end < 0 or re.search(r"[{}]|\[[&=\]]", code[begin:end]):
            return
        left, right = line[begin:found.start()].strip(), line[found.end():end].rstrip()
        other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[found[1]]
        if left and right:
            changed = f"({IS} ? {left} {other} {right} : {left} {found[1]} {right})"
            rest = line[begin + len(line[begin:end].rstrip()):]
            short = f"{line[:begin]}{left} {other} {right}{rest}"
            self.add("less", at, at + 1, [line[:begin] + changed + rest], line, short)

    def left(self, code: str, at: int) -> int:
        """Where the operand before `at` begins, or -1."""
        level, stop = 0, 0
        for begin in range(at - 1, -1, -1):
            level += (code[begin] in CLOSES) - (code[begin] in OPENS)
            if level < 0:
                stop = begin + 1
                break
        inside = code[stop:at]
        flat = flatten(inside)
        ends = [found.end() for found in ENDS.finditer(flat)]
        if not ends and stop == 0:
            return -1
        begin = stop + (ends[-1] if ends else 0)
        return begin + len(code[begin:at]) - len(code[begin:at].lstrip())

    def right(self, code: str, at: int) -> int:
        """Where the operand that begins there ends, or -1."""
        level, stop = 0, -1
        for end in range(at, len(code)):
            level += (code[end] in OPENS) - (code[end] in CLOSES)
            if level < 0:
                stop = end
                break
        flat = flatten(code[at:stop] if stop >= 0 else code[at:])
        found = ENDS.search(flat)
        return at + found.start() if found else stop


def flatten(text: str) -> str:
    """Of the same length, with nothing to be seen inside of brackets."""
    level, told = 0, []
    for each in text:
        level -= each in CLOSES
        told.append("_" if level > 0 else each)
        level += each in OPENS
    return "".join(told)


def sites(path: str, text: str) -> list[Site]:
    return Reader(path, text).found
