"""Objects without a stored form that hold data of variables: a return that loads the data names the objects."""

from __future__ import annotations

import pytest
from kernels import RunningKernel
from optional_libraries import optional

pytestmark = pytest.mark.usefixtures("loaded_libraries")
HOLDERS = {
    "a future": (
        "import asyncio; data = [1]; holder = asyncio.new_event_loop().create_future(); holder.set_result(data)",
        "holder.result()",
    ),
    "an object of a library that cleans up": (
        "import io, tqdm; data = [1]; holder = tqdm.tqdm(data, file=io.StringIO())",
        "holder.iterable",
    ),
    "a data set with an array": (
        (
            "import lightgbm, numpy as np; data = np.zeros((9, 1))\n"
            "holder = lightgbm.Dataset(data, data[:, 0], free_raw_data=False)"
        ),
        "holder.data",
    ),
    "a data set with a frame": (
        (
            "import lightgbm, pandas as pd; data = pd.DataFrame({'a': [1.0, 2.0]})\n"
            "holder = lightgbm.Dataset(data, [1, 2], free_raw_data=False)"
        ),
        "holder.data",
    ),
}


@pytest.mark.parametrize(("makes", "held"), HOLDERS.values(), ids=HOLDERS)
def test_an_object_whose_data_are_loaded_is_named(kernel: RunningKernel, makes: str, held: str):
    """It refers to the data as they are now, and no longer to those of the variable."""
    if "lightgbm" in makes:
        optional("lightgbm")
    write = "data.loc[0, 'a'] = 5" if "pandas" in makes else "data[0] = 5"
    for cell in (makes, write, "other = 1"):
        assert kernel.run(cell).status == "ok"

    unchanged = kernel.run("%ctx goto 2").stdout
    changed = kernel.run("%ctx goto 1").stdout

    assert "holder" not in unchanged
    assert kernel.evaluate(f"{held} is data") == "False"
    assert "as it is now: holder" in changed
