"""einturnip: tensor programs written as index equations, run in the memory you have."""
