#!/usr/bin/env python3
"""names.py: a type's name means one thing.

Fails where two headers of the product define a name at the level of one namespace, which a program that has both takes
for one type; and where more than MOST headers do, whatever their namespaces: whoever reads
`Link` should not have to ask which of four it is. A name of WORN, which every room would like for something of its
own, may be defined once in the whole product, nested types counting too.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("src", "topology", "transports", "collectives", "trainer", "python")
MOST = 2
WORN = ("Kind", "Part", "Run", "Place", "Peer", "Job")
DEFINITION = re.compile(r"^(\s*)(?:struct|class|enum class|enum|using)\s+(?:[A-Z_]+(?:\([^)]*\))?\s+)?([A-Z]\w*)\s*"
                        r"(?:final\s*)?(?:[{=]|:[^:]|:$)")


def definitions(path):
    """(line, name, the namespace at whose level it stands or None) of the types that a file defines."""
    spaces = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if entered := re.match(r"^namespace ([\w:]*) ?{", line):
            spaces.append(entered.group(1))
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        match = DEFINITION.match(line)
        if match:
            yield number, match.group(2), "::".join(spaces) if match.group(1) == "" else None


def main():
    headers, anywhere = collections.defaultdict(dict), collections.defaultdict(list)
    spaces = collections.defaultdict(dict)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]pp")):
            name = path.relative_to(ROOT).as_posix()
            for line, type_name, space in definitions(path):
                anywhere[type_name].append(f"{name}:{line}")
                if space is not None and path.suffix == ".hpp":
                    headers[type_name].setdefault(name, f"{name}:{line}")
                    spaces[f"{space}::{type_name}"].setdefault(name, f"{name}:{line}")
    problems = [f"{name} is defined in {len(places)} headers: {' '.join(places.values())}"
                for name, places in headers.items() if len(places) > MOST]
    problems += [f"{name} is defined twice in one namespace: {' '.join(places.values())}"
                 for name, places in spaces.items() if len(places) > 1]
    problems += [f"{name} means more than one thing: {' '.join(anywhere[name])}"
                 for name in WORN if len(anywhere[name]) > 1]
    for problem in problems:
        print(problem)
    if len(anywhere) < 500:
        print(f"found only {len(anywhere)} types: has the layout of definitions changed?")
        return 1
    print(f"{len(anywhere)} names of types, {len(problems)} that mean too much")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
