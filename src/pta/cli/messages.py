"""What is said to the person at the terminal."""

import sys


def say(message: str) -> None:
    """One line on stderr, beside whatever goes to stdout."""
    print(f"pta: {' '.join(message.split())}", file=sys.stderr)
