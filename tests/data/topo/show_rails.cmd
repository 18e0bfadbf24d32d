sennit topo --fabric rails.fabric
