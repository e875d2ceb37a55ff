"""What repairs each cause: one module for each kind of object that has to change."""
