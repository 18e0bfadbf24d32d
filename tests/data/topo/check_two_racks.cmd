sennit topo --fabric two_racks.fabric --check
