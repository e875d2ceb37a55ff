"""What a loss of nodes takes from the control of the cluster."""
