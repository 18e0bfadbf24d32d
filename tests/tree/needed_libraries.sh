#!/bin/sh
# needed_libraries.sh FILE...: fails where a library or program needs more than the runtime truly does, by itself or
# through another. What is optional is opened at run time (base/process/shared_library.hpp), so that one build runs where
# it is not. yaml-cpp and pugixml are linked: small, everywhere, and C++, whose names are no interface to look up.
# A library has to stay when a program closes it, because threads of it may run until the process ends.
allowed='^(ld-linux.*|libc|libm|libgcc_s|libstdc\+\+|libfmt|libsodium|libhwloc|libyaml-cpp|libpugixml)\.so'
optional='lib(ucp|ucs|uct|ucm|ibnetdisc|ibumad|ibmad|ibverbs|pmix|nvidia-ml)\.so'
found=0
for file in "$@"; do
  needed=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
  [ -n "$needed" ] || { echo "$file needs nothing, which cannot be"; found=1; }
  echo "$needed" | grep -Ev "$allowed" && echo "... is more than $file may need" && found=1
  case $file in *.so*)
    readelf -d "$file" | grep -q 'Flags:.*NODELETE' || { echo "$file could be unloaded (-z nodelete)"; found=1; }
  esac
  ldd "$file" | grep -E "$optional" && echo "... is optional: $file may not be linked with it" && found=1
done
exit $found
