# Ports below their width or speed: from a dump, and from a fabric file that also says what they could do.
sennit topo --fabric ../topology/forms/ibnetdiscover/degraded.dump --check
sennit topo --fabric ../topology/forms/ibnetdiscover/degraded.dump --save $TMP/saved > $TMP/out; sennit topo --fabric $TMP/saved --check | tail -n +2
sennit topo --fabric ports.fabric --check
