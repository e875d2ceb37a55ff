"""What is registered in a cluster, and whether the registration works."""
