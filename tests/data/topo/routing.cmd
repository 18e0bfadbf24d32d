# The forwarding tables behind a dump: all uplinks used; then one leaf that puts all on half of its uplinks.
sennit topo --fabric ../topology/forms/ibnetdiscover/routed.dump --check
sennit topo --fabric ../topology/forms/ibnetdiscover/routed_badly.dump --check
sennit topo --fabric ../topology/forms/ibnetdiscover/routed_badly.dump --save $TMP/saved | grep routing; sennit topo --fabric $TMP/saved --check | grep -c "cable  "
sennit topo --fabric ../topology/forms/ibnetdiscover/degraded.dump | grep routing
sennit topo --fabric ../topology/forms/ibnetdiscover/degraded.dump --json - | grep "routing assumed"
