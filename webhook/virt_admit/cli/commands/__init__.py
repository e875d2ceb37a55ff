"""One module for each verb: flags in, one call, a report out."""
