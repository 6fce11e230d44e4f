"""MemGraph to RunReport: the state machine, its policies and the loop."""
