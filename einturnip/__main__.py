"""``python -m einturnip``: the command line."""

from einturnip.cli.entry import main

if __name__ == "__main__":
    main()
