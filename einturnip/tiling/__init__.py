"""EinGraph to Decomposition: tile sizes for a memory (the default) or for P devices (EinDecomp).

In: ``EinGraph``. Out: ``types.Decomposition``. ``label_classes`` finds the labels that must be tiled alike,
``equivalence`` the einsums that cost the same. For a memory: ``search`` halves tiles step by step, ``refine`` fits
them to the memory, ``io_blocking`` keeps blocks of tiles, ``price`` ranks candidates by formula. For P devices:
``node_tilings``, ``cost_terms`` and ``elimination`` are EinDecomp (``eindecomp``), ``device_assignment`` puts calls on
devices.
"""
