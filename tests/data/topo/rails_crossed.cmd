sennit topo --fabric rails_crossed.fabric; sennit topo --fabric rails_crossed.fabric --check
