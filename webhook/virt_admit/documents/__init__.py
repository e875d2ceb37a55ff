"""Text to objects and back: parsers that record the position of each field, edits and diffs."""
