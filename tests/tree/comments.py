#!/usr/bin/env python3
"""comments.py: a comment above every type and every function that a header gives to others, of at most 100 columns.

usage: comments.py [FOLDER...]   (without one: the whole tree)

A paragraph of declarations, without an empty line in it, needs one comment at its head. A header that declares one
thing alone is spoken for by the comment that the file begins with. Fails, and prints FILE:LINE: NAME, for any other.
What stands within a type is left to its author, and so are its members that are defined below it. The formatter leaves
comments alone, so lines of comments that are too wide are named as well; `// ctest` lines are read by the build.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPS = ("include", "src", "topology", "transports", "collectives", "trainer", "python", "perf", "tests", "examples")
TYPE = re.compile(r"(?:struct|class|enum class|enum|union)\s+(?:(?:SENNIT_\w+(?:\([^)]*\))?|alignas\([^)]*\)|"
                  r"\[\[\w+\]\])\s+)*(\w+(?:<[^;{]*>)?)[^;]*$")
FUNCTION = re.compile(r"(?!namespace|using|typedef|public|private|static_assert|friend|return|extern \"C\"|[A-Z_]+\()"
                      r"[A-Za-z_\[][^=;{]*?\b(operator\S+|\w+)\s*\(")
ATTRIBUTES = re.compile(r"template\b|SENNIT_\w+(\(.*\))?$|\[\[|__attribute__|requires\b")


def declarations(lines):
    """[(line, name, whether a comment stands above its paragraph)] of what stands outside all types."""
    found, spoken, depth = [], False, 0
    above = ""
    for number, line in enumerate(lines, 1):
        code = line.split(" //")[0].rstrip()
        inner = depth > 0
        if not code.strip() and not line.strip():
            if not inner:
                spoken = False
        elif not inner and line.startswith(("//", "/*", " *")):
            spoken = True
        elif not inner and not line.startswith((" ", "#", "}", ")")) and not above.endswith((",", "(")):
            match = None if ATTRIBUTES.match(code) and not code.endswith((";", "{", "}", ",")) \
                else TYPE.match(re.sub(r"^template\s*<[^{]*?>\s+(?=struct|class)", "", code)) if "(" not in code \
                or re.match(r"(struct|class|enum)\b", code) else None
            if match and code.endswith(("{", "}", ":", "}; ")) or match and "{" in code:
                found.append((number, match.group(1), spoken))
            elif not match:
                match = FUNCTION.match(re.sub(r"^template\s*<.*?>\s+", "", code))
                if match and not code[:match.start(1)].endswith(("::", "::~")):
                    found.append((number, match.group(1), spoken))
        if not line.startswith(("namespace", 'extern "C"', "#", "//")) and not re.match(r"}\s*(//.*namespace|.*extern)", line):
            depth += code.count("{") - code.count("}")
        if line.strip():
            above = code
    return found


WIDE = re.compile(r"\s*(//(?! ctest)|/?\*)")
MOST_COLUMNS = 100


def too_wide(path):
    """FILE:LINE of the comments that are. A table of a file's format stays as the format has it."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if len(line) > MOST_COLUMNS and WIDE.match(line) and not line.startswith("//   "):
            yield f"{path.relative_to(ROOT)}:{number}: {len(line)} columns"


def main():
    folders = [ROOT / name for name in sys.argv[1:] or TOPS]
    problems = []
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".hpp", ".h")):
        here = declarations(path.read_text().splitlines())
        if len({name for _, name, _ in here}) > 1:
            problems += [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name, spoken in here if not spoken]
    problems += [where for folder in folders for path in sorted(folder.rglob("*"))
                 if path.suffix in (".hpp", ".h", ".cpp", ".c") for where in too_wide(path)]
    print("\n".join(problems + ["above each stands what its caller must know, in at most 100 columns"] if problems
                    else ["every type and every function of a header has its comment"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
