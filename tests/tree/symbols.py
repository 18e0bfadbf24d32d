#!/usr/bin/env python3
"""symbols.py: what sennit does with each function of NCCL, as a table for those who want to know before they try.

usage: symbols.py [--update]

src/nccl/functions.h has the state of each, where the code that depends on it reads it. Fails where src/nccl/SYMBOLS.md
is not what this program would write out of it, and for a row of the header that it cannot read; --update writes the
table.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "src/nccl/functions.h"
TABLE = ROOT / "src/nccl/SYMBOLS.md"
STATES = {
    "works": "does what NCCL's does",
    "answered": "from a table, or with what is true of sennit",
    "refused": "`ncclInvalidUsage`, and `ncclGetLastError` says why",
}


def read():
    """The kinds of functions in their order, [(kind, [(name, state)])], and what is wrong with the header."""
    text = HEADER.read_text()
    text = text[text.index("#define NCCL_FUNCTIONS"):]
    kinds, problems = [], []
    for comment, row in re.findall(r"/\* (.*?) \*/|FUNCTION\((?!FUNCTION\b)([^()]*)(?=\()", text):
        if comment:
            kinds.append((comment, []))
            continue
        parts = [part.strip() for part in row.replace("\\\n", " ").split(",")]
        if len(parts) < 3 or parts[0] not in STATES or not kinds:
            problems.append(f"src/nccl/functions.h: cannot be read: FUNCTION({row}...")
            continue
        kinds[-1][1].append((parts[2], parts[0]))
    rows = len(re.findall(r"^  FUNCTION\(", text, re.MULTILINE))
    found = sum(len(functions) for _, functions in kinds)
    if rows != found:
        problems.append(f"src/nccl/functions.h: {rows} rows, of which {found} can be read")
    return kinds, problems


def written(kinds):
    states = [state for _, functions in kinds for _, state in functions]
    lines = ["# Each function of NCCL, and what sennit does with it", "",
             "Written by `tests/tree/symbols.py --update` from `functions.h`. Each has a twin whose name begins",
             "with `p`, which does the same. What else holds is in the [README](README.md).", "",
             "| state | functions | what it means |", "|---|---|---|"]
    lines += [f"| {state} | {states.count(state)} | {meaning} |" for state, meaning in STATES.items()]
    for kind, functions in kinds:
        lines += ["", f"## {kind}", "", "| function | state |", "|---|---|"]
        lines += [f"| `{name}` | {state} |" for name, state in functions]
    return "\n".join(lines) + "\n"


def main():
    kinds, problems = read()
    new = written(kinds)
    if "--update" in sys.argv[1:]:
        TABLE.write_text(new)
    elif not TABLE.exists() or TABLE.read_text() != new:
        problems.append("src/nccl/SYMBOLS.md: is not what functions.h says: tests/tree/symbols.py --update")
    print("\n".join(problems) or "the table of NCCL's functions is what the header says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
