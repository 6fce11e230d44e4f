"""The scheduler on a virtual clock: predicts the time of plans, on this machine or on a described one.

Read in this order: ``virtual_clock``, ``machine_prices``, ``dispatch``, ``simulator``.
"""
