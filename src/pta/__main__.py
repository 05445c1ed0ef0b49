"""`python -m pta` is the command `pta`."""

from pta.cli import main

if __name__ == "__main__":
    main()
