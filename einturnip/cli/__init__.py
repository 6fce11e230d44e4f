"""The command line: one module for each verb.

In: arguments, files and signals. Out: text on standard output, messages on standard error, an exit code. Read ``entry``
and ``main`` (verbs, errors, exit codes), ``options`` and ``planning`` (shared by verbs), then ``run``, with
``multi_program``, ``steps`` and ``recording`` for its variants, and ``plan``. ``signals`` and ``process`` keep the
process in order when it is interrupted or its output is closed. Modules import others only when a verb runs.
"""
