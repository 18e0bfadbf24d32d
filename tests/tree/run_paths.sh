#!/bin/sh
# run_paths.sh FOLDER...: fails where a program or library below has a run path with an entry that is empty or relative:
# each means the current directory, from which a program that root starts would then load whatever lies there.
found=0
for file in $(find "$@" -type f \( -perm -u+x -o -name '*.so*' \)); do
  paths=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]$/\2:end/p')
  case ":$paths:" in ::) continue ;; esac
  rest=$paths
  while [ "$rest" != end ]; do
    entry=${rest%%:*}
    rest=${rest#*:}
    case $entry in
      /* | '$ORIGIN' | '$ORIGIN'/*) ;;
      *) echo "$file: run path '${paths%:end}' has the entry '$entry'" && found=1 && break ;;
    esac
  done
done
exit $found
