"""What health checks and remediators do after a node fails, and when its VMs run again."""
