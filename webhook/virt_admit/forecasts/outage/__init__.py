"""What the loss of nodes costs: which VMs restart, where and when, and what keeps others down."""
