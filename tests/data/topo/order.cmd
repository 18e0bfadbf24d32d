sennit topo --fabric two_racks.fabric --order dealt.hosts --hostfile - 2>$TMP/report; cat $TMP/report
sennit topo --fabric two_racks.fabric --order --nodelist $TMP/n --rankfile $TMP/r; head -2 $TMP/n $TMP/r | grep -v ==
# Two ranks a host, three ways to say it; unequal racks.
printf 'h[0-7] slots=2\n' > $TMP/a; printf 'h[0-7]:2\n' > $TMP/b
sennit topo --fabric "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5" --order $TMP/a
sennit topo --fabric "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5" --order $TMP/b > $TMP/same
# In a Slurm job; capacities unknown.
SLURM_JOB_ID=7 SLURM_JOB_NODELIST='dev[0,12],dev[1-2]' SLURM_TASKS_PER_NODE='2(x3),1' sennit topo --fabric ../topology/forms/slurm_conf/tree.conf --order --hostfile $TMP/h; cat $TMP/h
# In a step of srun -m arbitrary, whose list of nodes is sorted and says nothing of the order.
printf 'dev0\ndev12\ndev1\ndev13\n' > $TMP/s
SLURM_JOB_ID=7 SLURM_JOB_NODELIST='dev[0-1,12-13]' SLURM_DISTRIBUTION=arbitrary SLURM_HOSTFILE=$TMP/s sennit topo --fabric ../topology/forms/slurm_conf/tree.conf --order
# Hosts that the fabric does not know: exit status 1.
printf 'h0\nelsewhere\nh1\n' > $TMP/c; sennit topo --fabric two_racks.fabric --order $TMP/c; echo $?
printf 'h0\nh1 slots=many\n' > $TMP/d; sennit topo --fabric two_racks.fabric --order $TMP/d; echo $?
printf 'h0:0\n' > $TMP/e; sennit topo --fabric two_racks.fabric --order $TMP/e; echo $?
printf '\n' > $TMP/f; sennit topo --fabric two_racks.fabric --order $TMP/f; echo $?
sennit topo --fabric two_racks.fabric --hostfile $TMP/g 2> $TMP/err; echo $?
# Slurm may say for all nodes alike how many tasks each has.
SLURM_JOB_ID=7 SLURM_JOB_NODELIST='h[0-3]' SLURM_NTASKS_PER_NODE=2 sennit topo --fabric two_racks.fabric --order
# The report stays out of what goes to standard output, and a source that failed is said.
sennit topo --fabric two_racks.fabric --order --save - 2> $TMP/err | tail -1; head -1 $TMP/err
mkdir $TMP/slurm; echo 'SwitchName=s Nodes=a[' > $TMP/slurm/topology.conf
SENNIT_FABRIC=two_racks.fabric SLURM_CONF=$TMP/slurm/slurm.conf sennit topo --order > $TMP/out; echo $?
