#!/usr/bin/env python3
"""maps.py: the map in every folder's README.md: its files, one line each.

usage: maps.py [--update]

A line is the first sentence of the file's opening comment; a header and its source are one entry. Fails where a
README.md lacks a file that is there or names one that is not, and where a line would say nothing to a reader: it ends
within brackets, or only sends him to another file. Fails too for a source file, here or in tests/, whose first line
is no comment. A folder of tests/ has a map where its README.md has the two marks. --update writes all maps anew, with
the words that the files begin with now.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPS = ("include", "src", "topology", "transports", "collectives", "trainer", "python", "perf", "examples")
WITH_SUFFIX = ("examples", "include/sennit")  # where C and C++ stand side by side under one name
SUFFIXES = (".cpp", ".hpp", ".c", ".h")
BEGIN = "<!-- the map: tests/tree/maps.py --update -->"
END = "<!-- end of the map -->"
MOST_CHARACTERS = 120  # of an entry


def opening(path):
    """The comment that the file begins with, as one line of text, without the file's own name."""
    if path.suffix == ".py":
        return path.read_text().split('"""')[1].replace(f"{path.name}: ", "").splitlines()[0]
    words = []
    for line in path.read_text().splitlines():
        match = re.match(r"\s*(?://|/\*|\*|#)+ ?(.*?)(?:\*/)?$", line)
        if line.startswith(("#!", "#pragma", "#ifndef")) or not (match or words):
            continue
        if not match or not match.group(1).strip():
            break
        words.append(match.group(1).strip())
    return re.sub(rf"^{re.escape(path.name)}: *", "", " ".join(words))


def first_sentence(text):
    sentence = re.split(r"(?<=[^.])\.(?= |$)", text, maxsplit=1)[0].strip().rstrip(":")
    sentence = re.sub(r"; see \S+$| \(see [^)]*\)", "", sentence)
    if len(sentence) > MOST_CHARACTERS:
        start = sentence[:MOST_CHARACTERS]
        cut = max(start.rfind(mark) for mark in (": ", "; ", " (", ", "))
        sentence = start[:cut if cut > 20 else start.rfind(" ")]
    sentence = sentence.replace("|", "\\|")
    if re.match(r"[A-Z][a-z]* (?![A-Z])", sentence):
        sentence = sentence[0].lower() + sentence[1:]
    return sentence


def entries(folder):
    """{name: what it is}. A header speaks for its source."""
    found = {}
    for path in sorted(folder.iterdir()):
        header = {".cpp": ".hpp", ".c": ".h"}.get(path.suffix)
        if path.suffix in SUFFIXES + (".py",) and not (header and path.with_suffix(header).exists()):
            short = path.suffix in (".cpp", ".hpp") and folder.relative_to(ROOT).as_posix() not in WITH_SUFFIX
            name = path.stem if short else path.name
            found[name] = first_sentence(opening(path))
    return found


def says_nothing(what):
    """An open bracket, or nothing but where to look. [0, n) closes what it does not open, which is fine."""
    return not what or what.count("(") > what.count(")") or re.search(r"(^|[:;,(] ?)see ", what) is not None


def without_words():
    """Source files that do not begin with what they are."""
    files = sorted(path for top in TOPS + ("tests",) for path in (ROOT / top).rglob("*"))
    return [f"{path.relative_to(ROOT)}: its first line is no comment that says what the file is" for path in files
            if path.suffix in SUFFIXES and not path.read_text().startswith(("// ", "/* "))]


def main():
    problems = without_words()
    folders = {p.parent for top in TOPS for p in (ROOT / top).rglob("*")
               if p.suffix in (".cpp", ".hpp", ".c") or p.name == "README.md" and BEGIN in p.read_text()}
    folders |= {p.parent for p in (ROOT / "tests").rglob("README.md") if BEGIN in p.read_text()}
    for folder in sorted(folders):
        name = folder.relative_to(ROOT).as_posix()
        readme = folder / "README.md"
        if not readme.exists():
            problems.append(f"{name}: no README.md")
            continue
        text = readme.read_text()
        if BEGIN not in text or END not in text:
            problems.append(f"{name}/README.md: no map; write these two lines: {BEGIN} {END}")
            continue
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        here = entries(folder)
        problems += [f"{name}: the first sentence of {file} does not do as a line of the map: {what}"
                     for file, what in here.items() if says_nothing(what)]
        if "--update" in sys.argv[1:]:
            table = "".join(f"| `{file}` | {what} |\n" for file, what in here.items())
            readme.write_text(f"{text[:begin]}\n| file | what it is |\n|---|---|\n{table}{text[end:]}")
            continue
        named = set(re.findall(r"^\| `([^`]+)` \|", text[begin:end], re.MULTILINE))
        problems += [f"{name}/README.md: lacks {file}" for file in sorted(here.keys() - named)]
        problems += [f"{name}/README.md: names {file}, which is not there" for file in sorted(named - here.keys())]
    print("\n".join(problems + ["mend the files' first sentences, and run tests/tree/maps.py --update"] if problems
                    else ["every map has every file"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
