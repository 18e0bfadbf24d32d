# What this user may not read is a hint, and no suspect; what is malformed fails.
mkdir $TMP/bin; printf '#!/bin/sh\necho permission denied >&2\nexit 1\n' > $TMP/bin/lldpctl; chmod +x $TMP/bin/lldpctl
export PATH=$TMP/bin:$PATH SENNIT_FABRIC=two_racks.fabric
sennit topo --check; echo $?
sennit topo | grep lldp; sennit topo --json - | grep -A4 '"lldp"'
mkdir $TMP/slurm; echo 'SwitchName=s Nodes=a[' > $TMP/slurm/topology.conf
SLURM_CONF=$TMP/slurm/slurm.conf sennit topo --check; echo $?
