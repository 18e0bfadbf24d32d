sennit topo --fabric degraded.fabric --check
