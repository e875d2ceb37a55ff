"""The command line: one module per verb, imported on use."""
