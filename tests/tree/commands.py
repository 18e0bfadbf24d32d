#!/usr/bin/env python3
"""commands.py: runs the command lines of the documents.

usage: commands.py BUILD [DOCUMENT...]

Every line of a block marked `sh` in README.md, DESIGN.md, CONTRIBUTING.md and the README.md of every folder is run,
in the order of the document, in a scratch folder that has the repository's folders, with the programs of BUILD in PATH and
sizes made small by SMALLER. A block of C or C++ whose first line is a comment with a file's name becomes that file. A
line is left out only where NOT_RUN, or a program that is not here, gives a reason; these are printed at the end. Fails
with the output of each line that fails, for a command that stands in a block without `sh`, and for a program of the
repository that may not be executed, be it run or not.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 150  # for one line, on a machine that builds beside it

# What a document says, and what is run instead.
SMALLER = [
    (r"-np 8\b|-n 8\b", "-np 2"),
    (r"--ranks [48]\b", "--ranks 2"),
    (r"--local 8 --tp 2 --pp 2", "--local 2 --tp 2"),
    (r"--tp 2 --cp 2 --zero 3", "--zero 3"),
    (r"-b 8 -e 64M -f \d", "-b 8 -e 4K -f 8 -n 2"),
    (r"-b 16M -e 16M|-b 1K -e 1G -f 2", "-b 64K -e 64K -n 2"),
    (r"-b 1K -e 64M", "-b 1K -e 2K --rounds 1 --plans 2"),
    (r"-b 16000000 -e 16000000", "-b 100000 -e 100000 -n 2"),
    (r"--sizes 16000000 --rounds 7", "--sizes 100000 --rounds 1 --iterations 2"),
    (r"--sizes 16000000 --pairs 5", "--sizes 1024 --pairs 2 --iterations 2 --limit 100"),
    (r"-np 2 onehost_compare$", "-np 2 onehost_compare -p 1 all_reduce:1K"),
    (r"onehost_compare -p 21 -m malloc all_reduce:1M all_gather:16M", "onehost_compare -p 1 -m malloc all_reduce:1K"),
    (r"^sennit tokenize .*(-o|--output) (\S+).*", r"sennit tokenize -o \2 --vocabulary 400 perf topology"),
    (r"--steps \d+", "--steps 2 --batch 2 --micro-batch 1 --sequence 64 --sample-tokens 2 --evaluate-batches 1 "
     "--threads 1"),
    (r"--threads 1 (.*)--threads 1", r"\1--threads 1"),
    (r"simgrid_judge .*", "simgrid_judge --fabrics 1 --collectives broadcast --algorithms tree --sizes 1M"),
    (r"^perf/diagnosis/noise.py$", "perf/diagnosis/noise.py --job all_gather --seconds 3"),
    (r"^injections .*", "injections --trials 1 --least-ranks 4 --most-ranks 4"),
    (r"^sennit diagnose traces", "sennit diagnose traces || test $? = 1"),  # who is late by chance is a verdict
    (r"BM_PlanAndProgram$", "BM_PlanAndProgram/24576/barrier"),
    (r"BM_Verify/1024", "BM_Verify/1024/tree/broadcast"),
    (r"llama3-\w+ (.*)--gpus \d+ --mesh \S+", r"llama3-8b \1--gpus 64 --mesh tp8,dp8 --no-curve"),
    (r"llama3-70b (.*)--gpus 2048", r"llama3-8b \1--gpus 64 --no-curve"),
    (r"(sennit job .*)--fabric meta24k", r"\1--fabric 'synthetic:racks=4x2;nic=400Gbit/s;oversubscription=2;ranks=8'"),
    (r"-b 1G --fabric meta24k --ranks-per-host 1 --groups 8 --stride 384",
     "-b 1M --fabric 'synthetic:racks=4x2;nic=400Gbit/s;oversubscription=2;ranks=8' --groups 2 --stride 4"),
    (r"/usr/local && ldconfig$", "$PWD/installed"),  # where LD_LIBRARY_PATH leads
    (r"/usr/local", "$PWD/installed"),
    (r"\./program_with_nccl", "nccl_client"),
    (r"mpirun -np \d+ \./program_with_mpi", "mpirun --oversubscribe --allow-run-as-root -np 2 pmpi_program"),
]
# Line of a document, and why it is not run here.
NOT_RUN = [
    (r"^\./run demo", "takes minutes on an emulated tree"),
    (r"^nvcc |^\./resident_kernel|^\./worker", "it needs a GPU and its compiler"),
    (r"^\./run train", "takes minutes of training"),
    (r"^\./run |^cmake --preset", "it builds and tests everything, and this runs within it"),
    (r"^pip (install|wheel)", "downloads packages, and builds the library again"),
    (r"^srun ", "needs a Slurm cluster"),
    (r"^sennit (diagnose|top) *(--pid 4711)?$", "needs a job that runs"),
    (r"torchrun|dropin/", "needs PyTorch"),
    (r"pytorch_train", "needs PyTorch"),
    (r"--before OLD", "needs another build to compare with"),
    (r"topo --probe", "needs several hosts; probe_emulated_test has them"),
    (r"24576|^simgrid_judge *$|fabrics 1,2,3", "takes minutes; its smaller neighbours are run"),
    (r"^perf/diagnosis/(replanning|hangs|faults).py", "takes minutes on an emulated tree"),
    (r"emulated_compare|overlap.py", "takes minutes of training on an emulated tree"),
    (r"model_25m", "takes a minute a step on some machines"),
    (r"--update$", "writes into the tree"),
]
# Programs that are not everywhere, and what brings them.
OPTIONAL = {"core_benchmark": "a build of all targets", "simgrid_judge": "a build of all targets",
            "onehost_compare": "a build of all targets", "mpirun": "Open MPI", "pkg-config": "pkg-config"}


def documents(chosen):
    if chosen:
        return [pathlib.Path(name).resolve() for name in chosen]
    tops = ("src", "topology", "transports", "collectives", "trainer", "python", "perf", "examples", "tests")
    return [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md")] + sorted(
        path for top in tops for path in (ROOT / top).rglob("README.md"))


def blocks(path):
    """(language, line of the first line, lines) of each fenced block."""
    language, lines, begin = None, [], 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            if language is None:
                language, lines, begin = line[3:].strip(), [], number + 1
            else:
                yield language, begin, lines
                language = None
        elif language is not None:
            lines.append(line)


def commands(lines, begin):
    """(line number, command) with continued lines joined and comments taken off."""
    whole = ""
    for number, line in enumerate(lines, begin):
        whole += re.sub(r"(^|\s+)# .*$", "", line).rstrip()
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if whole.strip():
            yield number, whole.strip()
        whole = ""


def why_not(command, environment, emulates):
    for pattern, reason in NOT_RUN:
        if re.search(pattern, command):
            return reason
    if "emulate" in command or "--where tree" in command:
        if not emulates:
            return "no namespaces can be made here"
    if re.search(r"emulate (lose|cut)", command) and not shutil.which("nft", path=environment["PATH"]):
        return "nft needs nftables"
    trains = re.search(r"sennit (train|tokenize|checkpoint)", command)
    if trains and not shutil.which("sennit-trainer", path=environment["PATH"]):
        return "the trainer was not built"
    for word in command.split():
        if word in OPTIONAL and not shutil.which(word, path=environment["PATH"]):
            return f"{word} needs {OPTIONAL[word]}"
    return None


def smaller(command):
    for pattern, replacement in SMALLER:
        command = re.sub(pattern, replacement, command)
    return command


def useless_rows():
    """Rows of SMALLER and NOT_RUN that fit no command of any document."""
    said = [command for path in documents([]) for language, begin, lines in blocks(path) if language == "sh"
            for _, command in commands(lines, begin)]
    useless = [row[0] for row in NOT_RUN if not any(re.search(row[0], command) for command in said)]
    said = [command for command in said if not any(re.search(row[0], command) for row in NOT_RUN)]
    for pattern, replacement in SMALLER:
        if not any(re.search(pattern, command) for command in said):
            useless.append(pattern)
        said = [re.sub(pattern, replacement, command) for command in said]
    return [f"tests/tree/commands.py: a row that fits no command: {pattern}" for pattern in useless]


def run(command, folder, environment):
    """(exit status, output). What it leaves running is its own affair: `sennit emulate up` does."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            status = subprocess.run(["sh", "-ec", command], cwd=folder, env=environment, timeout=SECONDS,
                                    stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT).returncode
        except subprocess.TimeoutExpired:
            status = f"more than {SECONDS} s"
        output.seek(0)
        return status, output.read()


def scratch(folder, build):
    """The repository's folders by link, BUILD as build/release, and what a user's environment has."""
    for path in ROOT.iterdir():
        if path.name not in ("build", ".git"):
            (folder / path.name).symlink_to(path)
    (folder / "build").mkdir()
    (folder / "build/release").symlink_to(build)
    names = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
    libraries = [folder / "installed" / name for name in names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SENNIT_")}
    return environment | {
        "PATH": f"{build}/bin:{environment.get('PATH', '/usr/bin:/bin')}", "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"), "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "PKG_CONFIG_PATH": ":".join(f"{path}/pkgconfig" for path in libraries),
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    problems, left_out, count = useless_rows(), {}, 0
    with tempfile.TemporaryDirectory(prefix="sennit-commands-") as name:
        folder = pathlib.Path(name)
        environment = scratch(folder, build)
        emulates = run("sennit emulate run --racks 1 --hosts 1 -- true", folder, environment)[0] == 0
        for path in documents(sys.argv[2:]):
            where = path.relative_to(ROOT).as_posix()
            for language, begin, lines in blocks(path):
                named = re.match(r"(?:/\* | *// )(\w+\.c(?:pp)?)\b", lines[0]) if lines else None
                if language in ("c", "cpp") and named:
                    (folder / named.group(1)).write_text("\n".join(lines) + "\n")
                if language == "":
                    problems += [f"{where}:{begin}: a command in a block that is not marked sh: {line}"
                                 for line in lines if re.match(r"(\$ )?(sennit|mpirun|srun|cmake|\./run) ", line)]
                if language != "sh":
                    continue
                for number, command in commands(lines, begin):
                    program = ROOT / command.split()[0]
                    if program.is_file() and not os.access(program, os.X_OK):
                        problems.append(f"{where}:{number}: {command.split()[0]} may not be executed (chmod +x)")
                    reason = why_not(command, environment, emulates)
                    if reason:
                        left_out.setdefault(reason, []).append(f"{where}:{number}: {command}")
                        continue
                    began = time.monotonic()
                    status, output = run(smaller(command), folder, environment)
                    count += 1
                    print(f"{time.monotonic() - began:5.1f} s  {where}:{number}: {smaller(command)}"
                          f"{f'  FAILED: {status}' if status != 0 else ''}", flush=True)
                    if status != 0:
                        problems.append(f"{where}:{number}: {command}\nrun as: {smaller(command)}\n"
                                        f"exit status {status}\n{output[-3000:]}")
        run("sennit emulate down --all", folder, environment)
    print(f"{count} commands run. Not run:")
    for reason in sorted(left_out):
        print(f"  {reason}:", *left_out[reason], sep="\n    ")
    print("\n".join(problems) or "every command that was run does what it should")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
