sennit topo --fabric "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5"; sennit topo --fabric "racks=1,2,3,2;nic=400Mbit/s;oversubscription=5" --check
