"""The scheduler on a virtual clock: predicted times of plans, and offload policies compared."""
