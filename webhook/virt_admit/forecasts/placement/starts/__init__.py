"""Why a pod that has a node does not start."""
