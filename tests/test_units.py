"""Values that share objects are packed in units. Units never refer to each other in a circle: none could be loaded."""

from __future__ import annotations

import pytest
from pickling_rows import Box

from ctxkernel.state.tracking.groups import Moment

CELLS = {
    "a view, its base, and a list of the base": """
        import numpy as np
        class Noted(np.ndarray): pass
        a = np.zeros(9).view(Noted); a.note = [1]
        v = a[1:]; x = [v, a.note]; y = [v, a]; del a, v
    """,
    "the same as variables": """
        import numpy as np
        class Noted(np.ndarray): pass
        a = np.zeros(9).view(Noted); a.note = [1]
        v = a[1:]; x = [v, a.note]; y = [v, a]
    """,
    "a grouped frame with a time zone": """
        import numpy as np, pandas as pd
        index = pd.date_range('2024-01-01', periods=48, freq='h', tz='UTC')
        s = pd.Series(np.arange(48.0), index=index); df = pd.DataFrame({'v': s, 'k': pd.Categorical(['a', 'b'] * 24)})
        g = df.groupby(['k', df.index.date], observed=True); g.ngroups
    """,
}


@pytest.mark.parametrize("cell", CELLS)
def test_no_unit_refers_to_itself_by_way_of_others(cell):
    """Also where a shared object holds another object that a variable holds."""
    box = Box(CELLS[cell])
    values = box.values()
    moment = Moment(box.packer, values.__getitem__)
    moment.pack([(name,) for name in values])
    units = {id(one): one for one in moment.pieces.values()}

    def reached(key: int, seen: tuple[int, ...] = ()) -> None:
        assert key not in seen, [units[one].names for one in (*seen, key)]
        for label in units[key].packed.labels:
            if label.startswith("shared:") and label not in units[key].names:
                reached(id(moment.pieces[label]), (*seen, key))

    assert not moment.faults
    for key in units:
        reached(key)
