sennit topo --diff two_racks.fabric two_racks_later.fabric; echo $?
sennit topo --diff two_racks.fabric two_racks.fabric; echo $?
sennit topo --fabric two_racks.fabric --save $TMP/saved > $TMP/out; sennit topo --diff two_racks.fabric $TMP/saved; echo $?
sennit topo --diff two_racks.fabric nothing; echo $?
