"""The scheduler on a virtual clock: predicted times of plans, and of plans on described machines."""
