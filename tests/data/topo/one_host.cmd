sennit topo --fabric one_host.fabric
