# Every error says where and what was expected; exit status 2.
sennit topo --fabric ../topology/forms/fabric/bad_rate.fabric; echo $?
sennit topo --fabric no_such_file; echo $?
sennit topo --fabric "racks=0"; echo $?
echo 'switch s' > $TMP/empty; sennit topo --fabric $TMP/empty; echo $?
sennit topo --fabric two_racks.fabric --save /no/such/folder/x; echo $?
sennit topo --no-such-option > /dev/null 2>&1; echo $?
# What somebody named must be right; what else fails is said, and the others go on.
SENNIT_FABRIC=no_such_file sennit topo; echo $?
mkdir $TMP/slurm; echo 'SwitchName=s Nodes=a[' > $TMP/slurm/topology.conf
SLURM_CONF=$TMP/slurm/slurm.conf sennit topo > $TMP/out; echo $?; grep failed $TMP/out
# A variable that is not set is no wish to see this host.
sennit topo --fabric ""; echo $?
sennit topo --fabric two_racks.fabric --json ""; echo $?
# What cannot be had together.
sennit topo --fabric two_racks.fabric --save - --json -; echo $?
sennit topo --fabric two_racks.fabric --svg $TMP/x --html $TMP/x; echo $?
sennit topo --fabric two_racks.fabric --order --check; echo $?
sennit topo --fabric two_racks.fabric --probe; echo $?
sennit topo --diff two_racks.fabric two_racks.fabric --json -; echo $?
sennit topo --html $TMP/page --diff two_racks.fabric two_racks.fabric; echo $?
