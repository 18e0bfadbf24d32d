sennit topo --fabric degraded.fabric
