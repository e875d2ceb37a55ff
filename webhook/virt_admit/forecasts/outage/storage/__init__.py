"""What the loss of nodes does to storage that runs in the cluster itself."""
