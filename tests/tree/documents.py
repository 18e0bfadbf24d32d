#!/usr/bin/env python3
"""documents.py: documents that can be read, and names of files that exist.

Of every .md file: lines of at most 100 columns (rows of tables, pictures and outputs may be longer), at most 25 words
a sentence on average, at most two figures a sentence (outside tables and code), README.md and DESIGN.md of at most
150 lines, README.md of a folder of at most 60 (src/README.md: 95). Of these, and of the comments of sources, scripts
and CMake files: every file that is named exists, relative to the folder, to src/, to the repository, to include/ or to python/.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPS = ("src", "topology", "transports", "collectives", "trainer", "python", "perf", "examples", "tests", "include",
        ".ci")
MOST_COLUMNS = 100
MOST_WORDS = 25
MOST_FIGURES = 2
# src/README.md is longer than other folders' by what the table of all rooms takes, which is more than 60 lines alone:
# who asks what a file may include must not have to look in several places.
LINES = {"README.md": 150, "DESIGN.md": 150, "src/README.md": 95}
FOLDER_LINES = 60

CODE = re.compile(r"`[^`]*`")
# A number that stands by itself: not h0, fp32 or 10BASE. A day, a version and a paper's number are none.
NO_FIGURE = re.compile(r"\d{4}-\d\d(-\d\d)?|\b\d+\.\d+\.\d+\b|arXiv \S+|RFC \d+|[A-Za-z_]\S*\d\S*")
FIGURE = re.compile(r"(?<![\w.])\d[\d,.]*")
NAMED = re.compile(r"(?<![\w/.<~$*}-])((?:[\w*.-]+/)*[\w*-][\w*.-]*\.(?:hpp|cpp|h|py|sh|md|cmake))(?![\w/*-])")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# Files of others, or that the reader makes.
OTHERS = {"bits.h", "emmintrin.h", "immintrin.h", "nccl.h", "mpi.h", "infiniband/verbs.h", "memory.h"}


def documents():
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not any(part == "build" or part.startswith(".git") for part in parts) and parts[0] != "shared":
            yield path


def paragraphs(text):
    """What is read as sentences: (number of the first line, text), without code, tables, headings and comments."""
    fenced, found, begin = False, [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            line = ""
        code = fenced or (line.startswith("    ") and not found)
        starts = re.match(r"\s*([-*] |\d+\. )", line)
        if code or starts or not line.strip() or line.lstrip().startswith(("|", "#", "<!--", ">")):
            if found:
                yield begin, " ".join(found)
                found = []
            if not starts:
                continue
        if not found:
            begin = number
        found.append(re.sub(r"^\s*([-*] |\d+\. )?", "", line))


def sentences(text):
    """(line of the paragraph, sentence)"""
    for number, paragraph in paragraphs(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", CODE.sub("CODE", paragraph))
        plain = re.sub(r"\*\*|[*_](?=\w)|(?<=\w)[*_]", "", plain)
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z(\"`])", plain):
            if sentence.strip():
                yield number, sentence


def check_prose(path, problems):
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    lines = text.splitlines()
    most = LINES.get(name, FOLDER_LINES if path.name == "README.md" else None)
    if most and len(lines) > most:
        problems.append(f"{name}: {len(lines)} lines, more than {most}")
    block = None  # the language of the block that the line is in
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            block = line.strip()[3:] if block is None else None
        if len(line) > MOST_COLUMNS and block != "" and not line.startswith("|"):
            problems.append(f"{name}:{number}: {len(line)} columns, more than {MOST_COLUMNS}")
    words, count = 0, 0
    for number, sentence in sentences(text):
        words += len(sentence.split())
        count += 1
        figures = FIGURE.findall(NO_FIGURE.sub("", sentence))
        if len(figures) > MOST_FIGURES:
            problems.append(f"{name}:{number}: {len(figures)} figures in one sentence: {sentence[:90]}")
    if count and words / count > MOST_WORDS:
        problems.append(f"{name}: {words / count:.1f} words a sentence on average, more than {MOST_WORDS}")


def exists(named, folder):
    if re.search(r"[A-Z]{3,}", pathlib.PurePath(named).stem) and not named.endswith(".md"):
        return True  # NAME.cpp: a pattern
    if named in OTHERS:
        return True
    for root in (folder, ROOT / "src", ROOT, ROOT / "include", ROOT / "include/sennit", ROOT / "python"):
        if "*" in named:
            if any(root.glob(named)):
                return True
        elif (root / named).exists():
            return True
    return False


def comments(path):
    """(line, text) of what is said about the code rather than to a compiler."""
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        fenced = False  # what stands in a block of code is the reader's: tests/tree/commands.py tries it
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, line
        return
    mark = r"//|^\s*/?\*" if path.suffix in (".hpp", ".cpp", ".c", ".h") else r"(^|\s)#"
    for number, line in enumerate(text.splitlines(), 1):
        match = re.search(mark, line)
        if match and not re.match(r"\s*#\s*include", line):
            yield number, line[match.start():]


def check_names(path, problems):
    name = path.relative_to(ROOT).as_posix()
    for number, text in comments(path):
        text = re.sub(r"https?://\S+", "", text)
        named = NAMED.findall(text) + (LINK.findall(text) if path.suffix == ".md" else [])
        for file in named:
            if not exists(file.rstrip("/"), path.parent):
                problems.append(f"{name}:{number}: no such file: {file}")


def main():
    problems = []
    for path in documents():
        check_prose(path, problems)
        check_names(path, problems)
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".c", ".h", ".py", ".sh", ".cmake") or path.name == "CMakeLists.txt":
                check_names(path, problems)
    for name in ("CMakeLists.txt", "run"):
        check_names(ROOT / name, problems)
    print("\n".join(problems) or "the documents can be read, and every file that is named exists")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
