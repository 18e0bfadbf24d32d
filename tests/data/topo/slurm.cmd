# Names and shape, no capacities: nothing can be said of rates.
sennit topo --fabric ../topology/slurm/tree.conf; sennit topo --fabric ../topology/slurm/tree.conf --check
