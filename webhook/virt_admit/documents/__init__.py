"""Text to objects and back: parsers that know the place of each field, edits and diffs."""
