#!/usr/bin/env python3
"""functions.py: no function is longer than MOST lines, but for the numeric kernels.

A function that does not fit on a screen does more than one thing. Counted from the line with its name to its closing
brace, by braces, in C++ as clang-format lays it out: a function's closing brace stands in the column of its first
line. Lambdas and nested functions count as part of what holds them.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 60
# Loops over vectors, where cutting them apart costs time.
KERNELS = ("src/reduce/", "trainer/device/cpu/kernels/", "trainer/device/cpu/amx/")
FOLDERS = ("src", "topology", "transports", "collectives", "trainer", "python", "perf", "tests", "examples", "include")
NOT_FUNCTIONS = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|static_assert|using|constexpr [^(]*=|"
                           r"(static )?const [^(]*=|inline constexpr [^(]*=|if|for|while|switch|do|else|try|#|//|\})")


def functions(path):
    """(first line, number of lines, text) of everything with a body that is laid out like a function."""
    lines = path.read_text().splitlines()
    for i, line in enumerate(lines):
        if not line.endswith("{") or NOT_FUNCTIONS.match(line):
            continue
        start = i
        # The head may take several lines: up to one that ends what came before.
        while start > 0 and not re.search(r"([;{}:]|^\s*//.*|^)$", lines[start - 1]) and not lines[start - 1].lstrip().startswith(("#", "//")):
            start -= 1
        head = " ".join(lines[start:i + 1])
        if "(" not in head or re.search(r"\[[^\]]*\]\s*[({]|\] ?\{", head) or NOT_FUNCTIONS.match(lines[start]) or re.match(r"^\s*(return|[\w.>-]+ = )", lines[start]):
            continue
        indent = len(lines[start]) - len(lines[start].lstrip())
        closing = " " * indent + "}"
        end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(closing) and
                    not lines[j].startswith(closing + " else") and not lines[j].startswith(closing + " catch")), None)
        if end is not None:
            yield start + 1, end - start + 1, head.strip()


def main():
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[chp]*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in (".c", ".h", ".cpp", ".hpp") and not name.startswith(KERNELS):
                found += [(count, f"{name}:{line}: {count} lines: {head[:80]}")
                          for line, count, head in functions(path) if count > MOST]
    for _, text in sorted(found, reverse=True):
        print(text)
    print(f"{len(found)} functions of more than {MOST} lines")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
