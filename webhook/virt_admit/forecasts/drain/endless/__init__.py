"""What makes a drain go on without an end although nothing refuses an eviction."""
