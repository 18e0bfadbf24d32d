sennit topo --fabric meta24k
