# What comes through a pipe can be read once.
cat two_racks.fabric | sennit topo --fabric /dev/stdin --save $TMP/saved > $TMP/out; echo $?; sennit topo --diff two_racks.fabric $TMP/saved
printf 'host a b' | sennit topo --fabric /dev/stdin; echo $?
sennit topo --fabric .; echo $?
# Nor is a named one opened for anything else.
mkfifo $TMP/f; cat two_racks.fabric > $TMP/f & sennit topo --fabric $TMP/f --save $TMP/from > $TMP/out; echo $?; sennit topo --diff two_racks.fabric $TMP/from
printf 'host a b' > $TMP/f & sennit topo --fabric $TMP/f; echo $?
