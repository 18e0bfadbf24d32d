#!/bin/sh
# defects.sh: how many random programs it takes to find defects that the library once had. Each patch in defects/ puts one of
# them back, alone; the table says after how many programs, of at most 2,000, the first one failed.
# usage: tests/random/defects.sh [FOLDER]: where the patched sources are built; a new one below /tmp otherwise.
set -eu
patches=$(cd "$(dirname "$0")/defects" && pwd)
root=$(git -C "$patches" rev-parse --show-toplevel)
scratch=${1:-$(mktemp -d /tmp/defects.XXXXXX)}
[ -e "$scratch/tree" ] || git -C "$root" worktree add -q --detach "$scratch/tree"
export CCACHE_BASEDIR="$scratch/tree" CCACHE_NOHASHDIR=1
cd "$scratch/tree"
cmake --preset release -DSENNIT_TESTS=ON >"$scratch/cmake.log"
missed=0
echo "| defect | found after | the first that failed |"
echo "|---|---|---|"
for patch in "$patches"/*.patch; do
  name=$(basename "$patch" .patch)
  git apply "$patch"
  cmake --build --preset release -j "$(nproc)" --target random_programs >"$scratch/$name.build.log"
  build/release/bin/random_programs --programs 2000 --seed "${SEED:-1}" --limit 20 --no-shrink >"$scratch/$name.log" || true
  git apply -R "$patch"
  after=$(sed -n 's/^\([0-9]*\) programs, .* 1 failed; .*/\1/p' "$scratch/$name.log" | head -n 1)
  what=$(sed -n '/^seed [0-9]* over/,$p' "$scratch/$name.log" | sed -n '1p;2p' | tr '\n' ' ' | cut -c 1-120)
  echo "| $(echo "$name" | tr _ ' ') | ${after:-not in 2,000} | $what |"
  [ -n "$after" ] || missed=1
done
exit $missed
