#!/usr/bin/env python3
"""rooms.py: what every folder may include, and the table of it in src/README.md.

usage: rooms.py [--update]

ROOMS lists the folders from the ground up: a file may include files of its own folder, of folders below it, and the
public headers. The rooms of the tops in ONLY, which are users of the library, may include no more of the others than
stands there. Fails for an include of any folder that does not begin below src/ or at the repository, as "src/..." does
not: there is one root. Fails with a line for each include that goes upwards, or to what ONLY does not have, or to a
folder that is no room (tests/, perf/), and for each name of KEPT outside of the files that it is kept to. Fails for
what KEPT or ONLY allows without need, for each folder with sources that is in no line of ROOMS or has no README.md of
at most 60 lines, for more than MOST_FILES files in a folder, for a folder of WITH_WORDS without its README.md, and
where the table in src/README.md is not what this program would write; --update writes it. Its sizes are rounded and
may be off by a fifth before they count as wrong, so that not every change has to touch it.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FILES = 26  # headers and sources each; about 20 is what to aim for
MOST_README_LINES = 60
# Folders that are no rooms and yet have words of their own, of at most MOST_WORDS_LINES. tests/README.md speaks for the
# folders of tests that mirror the rooms.
WITH_WORDS = ("tests/toys", "tests/support", "tests/random", "tests/tree", "python/sennit", "python/sennit_torch",
              "python/examples")
MOST_WORDS_LINES = 30

# From the ground up. Rooms of one line may not include each other.
ROOMS = [
    ["src/base"],
    ["src/base/process", "src/base/text"],
    ["src/base/net"],
    ["topology/text"],
    ["topology/fabric"],
    ["topology"],
    ["src/schedule"],
    ["src/record"],
    ["src/cost"],
    ["collectives"],
    ["collectives/tiered"],
    ["src/verify", "src/simulate"],
    ["src/plan", "src/diagnose"],
    ["src/plan/groups", "src/plan/tuning", "src/diagnose/hang"],
    ["src/reduce", "transports"],
    ["transports/shm", "transports/tcp", "transports/ucx"],
    ["src/accelerator"],
    ["src/accelerator/cuda"],
    ["src/engine"],
    ["src/control"],
    ["src/control/tree"],
    ["src/control/rank"],
    ["topology/probe", "topology/sources/ibnet", "topology/sources/slurm"],
    ["topology/sources", "src/watch"],
    ["src/api/call", "src/api/start"],
    ["src/api/state"],
    ["src/api"],
    ["src/concurrent", "src/diagnose/recorded", "src/goal", "src/nccl", "src/pmpi"],
    ["src/forecast", "src/nccl/forwarder", "src/pmpi/forwarder"],
    ["src/command"],
    ["src/command/bench", "src/command/topo/read"],
    ["src/command/topo/model"],
    ["src/command/topo/suspects", "src/command/topo/outputs"],
    ["src/command/topo"],
    ["src/command/plan"],
    ["src/command/diagnose", "src/command/emulate", "src/command/exec", "src/command/forecast",
     "src/command/tune"],
    ["src/command/emulate/faults"],
    ["trainer/base"],
    ["trainer/device"],
    ["trainer/device/cpu/kernels"],
    ["trainer/device/cpu/amx"],
    ["trainer/device/cpu"],
    ["trainer/data"],
    ["trainer/checkpoint"],
    ["trainer/parallel"],
    ["trainer/model"],
    ["trainer/run/report"],
    ["trainer/run"],
    ["trainer/command"],
    ["python/core", "python/sennit_torch/core"],
]
# What the rooms below a folder may include of all others: rooms, or single files.
ONLY = {
    "trainer": ("src/base", "src/base/process", "src/base/text", "topology/fabric/units.hpp", "topology/source.hpp",
                "src/forecast/step.hpp", "src/command/commands.hpp", "src/command/bench/bench.hpp",
                "src/command/topo/read/read.hpp"),
    "python": (),
}
# What stands in few files: (what it is, how it is written, files, exceptions with their reason, which are printed).
KEPT = [
    ("a lock that clang's analysis does not know", r"\bstd::(mutex|condition_variable\w*)\b",
     ("src/base/mutex.hpp", "python/sennit_torch/core/*"), {}),  # the latter is on the public headers alone
    ("CLI11, which takes long to compile", r"#\s*include\s*[<\"]CLI/", ("src/command/command_line.*",), {}),
    ("nlohmann/json.hpp, which takes long to compile, in a header", r"#\s*include\s*[<\"]nlohmann/json\.hpp",
     ("*.cpp",), {
        "src/base/text/json.hpp": "who includes it works with the values",
        "src/command/emulate/compare.hpp": "a member is a value",
        "trainer/checkpoint/manifest.hpp": "a member is a value",
    }),
]
TOPS = ("src", "topology", "transports", "collectives", "trainer", "python", "perf", "examples", "tests", "include")
SUFFIXES = (".cpp", ".hpp", ".c", ".h")
TABLE_BEGIN = "<!-- the table: tests/tree/rooms.py --update -->"
TABLE_END = "<!-- end of the table -->"


def sources(folder):
    return sorted(p for p in (ROOT / folder).iterdir() if p.suffix in SUFFIXES)


def room_of(path):
    folder = path.parent.relative_to(ROOT).as_posix()
    return folder if any(folder in line for line in ROOMS) else None


def may_include(room, other, target):
    """Whether a file of a room may include a file of another; and what of ONLY allows it, if that does."""
    level = {room: i for i, line in enumerate(ROOMS) for room in line}
    if other == room:
        return True, None
    if level[other] >= level[room]:
        return False, None
    top = room.split("/")[0]
    if top not in ONLY or other.split("/")[0] == top:
        return True, None
    allowing = {other, target.relative_to(ROOT).as_posix()} & set(ONLY[top])
    return bool(allowing), (top, *allowing) if allowing else None


def below(i, room):
    """What a room may include besides what that includes, as the table says it."""
    top = room.split("/")[0]
    if i == 0:
        return "the standard library"
    if top in ONLY and ROOMS[i - 1][0].split("/")[0] != top:
        return ", ".join(name.removeprefix("src/") for name in ONLY[top]) or "the public headers"
    return ", ".join(name.removeprefix("src/") for name in ROOMS[i - 1])


def included(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if match and not match.group(1).startswith("sennit/"):
            yield number, match.group(1)


def kept(path):
    """Lines that use what is kept to other files; and the exceptions of KEPT that this file makes use of."""
    name = path.relative_to(ROOT).as_posix()
    problems, exceptions = [], []
    for what, pattern, files, excepted in KEPT:
        if any(path.match(file) for file in files):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not re.search(pattern, re.sub(r"//.*", "", line)):
                continue
            if name in excepted:
                exceptions.append(f"{name}: {what}: {excepted[name]}")
                break
            problems.append(f"{name}:{number}: {what}, which is kept to {', '.join(files)}")
    return problems, exceptions


def find(name, path):
    """The file that another means by a name."""
    own = [path.parent.parent] if path.is_relative_to(ROOT / "python") else []
    for root in own + [ROOT / "src", ROOT]:
        if (root / name).exists():
            return root / name
    return None


def alike(new, old):
    """Whether two texts differ in nothing but sizes, and these by less than a fifth (or by what rounding hides)."""
    size = r"(?<=\| )[\d,]+(?= \|)"
    if re.sub(size, "", new) != re.sub(size, "", old):
        return False
    sizes = [[int(n.replace(",", "")) for n in re.findall(size, text)] for text in (new, old)]
    return all(abs(a - b) <= max(a, b) / 5 or abs(a - b) <= (4 if max(a, b) < 100 else 100) for a, b in zip(*sizes))


def without_words():
    """Folders of WITH_WORDS whose README.md is missing or too long."""
    problems = []
    for name in WITH_WORDS:
        readme = ROOT / name / "README.md"
        if not readme.exists():
            problems.append(f"{name}: no README.md")
        elif len(readme.read_text().splitlines()) > MOST_WORDS_LINES:
            problems.append(f"{name}/README.md: more than {MOST_WORDS_LINES} lines")
    return problems


def without_root():
    """Includes, in any folder, that do not begin at src/ or at the repository; in python/, at its own top."""
    problems = []
    for path in sorted(path for top in TOPS for path in (ROOT / top).rglob("*") if path.suffix in SUFFIXES):
        for number, include in included(path):
            if include.startswith("src/") or find(include, path) is None:
                problems.append(f'{path.relative_to(ROOT)}:{number}: "{include}" is neither a path below src/ nor '
                                "below the repository")
    return problems


def main():
    problems, exceptions, needed = without_words() + without_root(), [], set()
    counts = {room: [0, 0] for line in ROOMS for room in line}
    folders = {p.parent for top in ("src", "topology", "transports", "collectives", "trainer", "python")
               for p in (ROOT / top).rglob("*") if p.suffix in SUFFIXES}
    for folder in sorted(folders):
        name = folder.relative_to(ROOT).as_posix()
        files = sources(name)
        if len(files) > MOST_FILES:
            problems.append(f"{name}: {len(files)} files, more than {MOST_FILES}: make a folder of what belongs together")
        readme = folder / "README.md"
        if not readme.exists():
            problems.append(f"{name}: no README.md")
        elif len(readme.read_text().splitlines()) > MOST_README_LINES:
            problems.append(f"{name}/README.md: more than {MOST_README_LINES} lines")
        for path in files:
            room = room_of(path)
            if room is None:
                problems.append(f"{name}: in no line of ROOMS in tests/tree/rooms.py")
                break
            counts[room][0] += len(path.read_text().splitlines())
            counts[room][1] += 1
            found = kept(path)
            problems += found[0]
            exceptions += found[1]
            for number, include in included(path):
                target = find(include, path)
                where = f"{path.relative_to(ROOT)}:{number}"
                if target is None:  # without_root() has said so
                    continue
                other = room_of(target)
                if other is None:
                    problems.append(f"{where}: no room may include what lies in none ({include})")
                    continue
                may, allowing = may_include(room, other, target)
                needed.add(allowing)
                if not may:
                    problems.append(f"{where}: {room} may not include {other} ({include})")
    table = ["| room | lines | files | may include, besides what that includes |", "|---|---|---|---|"]
    for i, line in enumerate(ROOMS):
        for room in line:
            lines, files = counts[room]
            table.append(f"| `{room}` | {max(100, round(lines, -2)):,} | {files} | {below(i, room)} |")
    readme = ROOT / "src/README.md"
    text = readme.read_text() if readme.exists() else f"{TABLE_BEGIN}\n{TABLE_END}\n"
    begin, end = text.index(TABLE_BEGIN) + len(TABLE_BEGIN), text.index(TABLE_END)
    new = text[:begin] + "\n" + "\n".join(table) + "\n" + text[end:]
    if "--update" in sys.argv[1:]:
        readme.write_text(new)
    elif not alike(new, text):
        problems.append("src/README.md: the table is not what is here: tests/tree/rooms.py --update")
    for what, _, _, excepted in KEPT:
        problems += [f"tests/tree/rooms.py: {name} is no exception any more ({what})" for name in excepted
                     if not any(line.startswith(f"{name}: {what}: ") for line in exceptions)]
    problems += [f"tests/tree/rooms.py: {top} includes nothing of {name} any more" for top, names in ONLY.items()
                 for name in names if (top, name) not in needed]
    print("exceptions:", *exceptions, sep="\n  ")
    print("\n".join(problems) or "every room includes only what lies below it")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
