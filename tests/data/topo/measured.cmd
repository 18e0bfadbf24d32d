sennit topo --fabric measured.fabric; sennit topo --fabric measured.fabric --check
