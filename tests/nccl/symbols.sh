#!/bin/sh
# symbols.sh LIBRARY: fails where sennit's libnccl.so.2 lacks a function that NVIDIA's of some version has (a program that
# names one does not load), where it exports anything else, and where it needs more than libc.
# tests/data/nccl/symbols_VERSION.txt: nm -D --defined-only libnccl.so.2 | awk '{ print $3 }' | grep '^p\{0,1\}nccl'
set -eu
data=$(dirname "$0")/../data/nccl
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' | LC_ALL=C sort)
found=0
for version in 2.30.7 2.32.3; do
  for name in $(cat "$data/symbols_$version.txt"); do
    echo "$exported" | grep -qx "$name" || { echo "$1 has no $name, which NCCL $version has"; found=1; }
  done
done
echo "$exported" | grep -v '^p\{0,1\}nccl[A-Z]' && echo "... is exported, and no function of NCCL's" && found=1
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
[ "$needed" = libc.so.6 ] || { echo "$1 needs more than libc: $needed"; found=1; }
exit $found
