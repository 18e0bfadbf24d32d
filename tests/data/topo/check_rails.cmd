sennit topo --fabric rails.fabric --check
