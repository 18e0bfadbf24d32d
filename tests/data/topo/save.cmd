# What is saved reads back to the same, and other commands take it.
sennit topo --fabric rails.fabric --save $TMP/once > $TMP/out && sennit topo --fabric $TMP/once --save $TMP/twice > $TMP/out && cmp $TMP/once $TMP/twice
sennit topo --fabric two_racks.fabric --save - | tail -3
SENNIT_FABRIC=$TMP/once sennit topo | sed -n 2,3p
