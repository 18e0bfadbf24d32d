# Names and shape, no capacities: nothing can be said of rates.
sennit topo --fabric ../topology/forms/slurm_conf/tree.conf; sennit topo --fabric ../topology/forms/slurm_conf/tree.conf --check
