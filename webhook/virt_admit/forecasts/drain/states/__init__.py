"""What each VM of a node is doing now, what comes next by itself, and when."""
