#!/bin/sh
# one_definition.sh OBJECT...: fails where an object defines a function or a variable as its own and another as inline:
# two definitions of one name, of which the linker keeps any.
nm -A --defined-only "$@" | awk '
  /__odr_asan_gen_/ { next }
  { kind = $(NF - 1); name = $NF; file = $1; sub(/:[0-9a-f]*$/, "", file) }
  kind ~ /^[TDBR]$/ { own[name] = file }
  kind ~ /^[WVu]$/ { common[name] = file }
  END { for (name in own) if (name in common) print name ": " own[name] " and, inline, " common[name] }
' | c++filt | { ! grep .; }
