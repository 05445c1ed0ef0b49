"""The interval of an audit as a plain loop over every total, with products instead of logarithms.

It is written from Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement
(https://arxiv.org/abs/2006.04347), and stands beside `pta.measure.audit.gain_sequence`.
"""

from collections.abc import Sequence

BETS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.49)


def capitals_loop(draws: Sequence[int], total: int, changed: int) -> list[tuple[float, float]]:
    """K⁺ and K⁻ of a total before the first draw and after each, as long as the total is possible."""
    products = {sign * bet: 1.0 for bet in BETS for sign in (1, -1)}
    held, found = 0, [(1.0, 1.0)]
    for number, x in enumerate(draws):
        left = changed - number
        if abs(total - held) > left:
            break
        mean = (total - held) / left
        for bet in products:
            products[bet] *= 1 + bet * (x - mean)
        held += x
        up, down = ([products[sign * bet] for bet in BETS] for sign in (1, -1))
        found.append((sum(up) / len(up), sum(down) / len(down)))
    return found


def audit_loop(draws: Sequence[int], changed: int) -> list[list[int]]:
    """The totals that are still in, after each draw."""
    inside = list(range(-changed, changed + 1))
    found = []
    for number in range(1, len(draws) + 1):
        held, left = sum(draws[:number]), changed - number
        possible = [total for total in inside if abs(total - held) <= left]
        inside = [total for total in possible if max(capitals_loop(draws[:number], total, changed)[-1]) < 40]
        found.append(inside)
    return found
