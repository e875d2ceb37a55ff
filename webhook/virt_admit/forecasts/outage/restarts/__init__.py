"""What KubeVirt itself does after the loss of a node."""
