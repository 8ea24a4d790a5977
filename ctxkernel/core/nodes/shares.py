"""The division of a group's budget among its members, by salience; the others get what one does not use. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

WEIGHTS = {"pinned": 3, "changed": 2, "asked": 2, "recent": 1}
"""The weight that each reason adds; without reasons the weight is 1."""
_ROUNDS = 4


def weight(reasons: Sequence[str]) -> int:
    """Return the weight of a member with these reasons, from 1."""
    return 1 + sum(WEIGHTS.get(reason, 0) for reason in reasons)


def split(room: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of `room` in proportion to `weights`.

    Holds: sum(result) == max(room, 0), and none is negative. The first ones get the rest from rounding.
    """
    room, total = max(room, 0), sum(weights)
    shares = [room * one // total for one in weights]
    for at in range(room - sum(shares)):
        shares[at % len(shares)] += 1
    return shares


def divide(room: int, weights: Sequence[int], use: Callable[[int, int], tuple[int, bool]]) -> list[int]:
    """Return the grant of each member, of `room` tokens together.

    `use(member, grant)` renders a member within a grant (≥ 1) and returns its tokens and whether it wants more. Unused
    tokens go to the members that want more, in proportion to their weights.
    Holds: sum(result) <= room where room >= len(weights).
    """
    grants = [max(1, share) for share in split(room, weights)]
    while sum(grants) > room and max(grants) > 1:  # a weight that rounds to 0 gets 1 from the largest
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
