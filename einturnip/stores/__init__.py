"""Files and arrays, read and written one region at a time."""
