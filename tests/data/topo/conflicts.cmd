# A file and Slurm place h0 to h3 differently: the file stands, and both are shown, saved and suspect.
mkdir $TMP/slurm; echo 'SwitchName=rack1 Nodes=h[0-7]' > $TMP/slurm/topology.conf
export SENNIT_FABRIC=two_racks.fabric SLURM_CONF=$TMP/slurm/slurm.conf
sennit topo --save $TMP/saved | sed -n '/disagree/,/h3/p'
sennit topo --check | grep '^conflict'
sennit topo --fabric $TMP/saved --check | grep -c '^conflict'
sennit topo --check > $TMP/out; echo $?
