"""How a group divides its budget: by salience, and what one member does not use goes to the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

WEIGHTS = {"pinned": 3, "changed": 2, "asked": 2, "recent": 1}
"""What each reason adds to the weight of a member, which is 1 without any."""
_ROUNDS = 4


def weight(reasons: Sequence[str]) -> int:
    """Return the weight of a member with these reasons, from 1."""
    return 1 + sum(WEIGHTS.get(reason, 0) for reason in reasons)


def split(room: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of `room` in proportion to `weights`.

    Holds: sum(result) == max(room, 0), and none is negative. What rounding leaves goes to the first ones.
    """
    room, total = max(room, 0), sum(weights)
    shares = [room * one // total for one in weights]
    for at in range(room - sum(shares)):
        shares[at % len(shares)] += 1
    return shares


def divide(room: int, weights: Sequence[int], use: Callable[[int, int], tuple[int, bool]]) -> list[int]:
    """Return what each member is granted of `room` tokens.

    `use(member, grant)` renders a member within a grant (≥ 1) and returns its tokens and whether it wants more. What
    one leaves over goes to those that want more, in proportion to their weights.
    Holds: sum(result) <= room where room >= len(weights).
    """
    grants = [max(1, share) for share in split(room, weights)]
    while sum(grants) > room and max(grants) > 1:  # a weight that rounds to nothing got its 1 from the largest
        grants[grants.index(max(grants))] -= 1
    wanting = list(range(len(weights)))
    for _ in range(_ROUNDS):
        found = {at: use(at, grants[at]) for at in wanting}
        spare = sum(grants[at] - found[at][0] for at in wanting if not found[at][1])
        for at in wanting:
            if not found[at][1]:
                grants[at] = found[at][0]
        wanting = [at for at in wanting if found[at][1]]
        if not wanting or spare <= 0:
            break
        for at, more in zip(wanting, split(spare, [weights[at] for at in wanting]), strict=True):
            grants[at] += more
    return grants
