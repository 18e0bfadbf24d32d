sennit topo --diff two_racks.fabric two_racks_later.fabric; echo $?
sennit topo --diff two_racks.fabric two_racks.fabric; echo $?
sennit topo --fabric two_racks.fabric --save $TMP/saved > $TMP/out; sennit topo --diff two_racks.fabric $TMP/saved; echo $?
sennit topo --diff two_racks.fabric nothing; echo $?
# A burst is a figure, and a device belongs to its host.
printf 'host h[0-1]\nnic n host h0\nswitch s\nlink h[0-1] s 1Gbit/s burst 256KiB\n' > $TMP/a; printf 'host h[0-1]\nnic n host h1\nswitch s\nlink h[0-1] s 1Gbit/s\n' > $TMP/b
sennit topo --diff $TMP/a $TMP/b; echo $?
