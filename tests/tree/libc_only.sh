#!/bin/sh
# libc_only.sh FILE...: fails where a library that is preloaded into every process of a job needs more than libc.
found=0
for file in "$@"; do
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
  [ "$needed" = libc.so.6 ] || { echo "$file needs more than libc:" $needed; found=1; }
done
exit $found
