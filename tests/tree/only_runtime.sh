#!/bin/sh
# only_runtime.sh OBJECT...: fails where the library has an object that no running job asks for: none of its functions is
# one of the library's own, registers something, or is called by an object that is asked for. It belongs to the tools
# (src/CMakeLists.txt).
nm -A "$@" | awk '
  { kind = $(NF - 1); name = $NF; file = $1; sub(/:[0-9a-f]*$/, "", file); files[file] }
  kind ~ /^[TDBR]$/ { definer[name] = file }
  kind == "U" { wants[file] = wants[file] " " name }
  name ~ /^sennit_/ && kind == "T" || name ~ /^_GLOBAL__sub_I/ { asked[file]; queue[++last] = file }
  END {
    for (i = 1; i <= last; i++) {
      count = split(wants[queue[i]], names, " ")
      for (n = 1; n <= count; n++) {
        file = definer[names[n]]
        if (file != "" && !(file in asked)) { asked[file]; queue[++last] = file }
      }
    }
    if (last == 0) print "nothing was asked for, which cannot be"
    for (file in files) if (!(file in asked)) print file ": no running job asks for it"
  }
' | { ! grep .; }
