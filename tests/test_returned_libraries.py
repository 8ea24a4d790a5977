"""Objects of libraries come back with what they held then, also where their library stores only a name."""

from __future__ import annotations

import textwrap

from test_returning import run_all
from told import named_by


def test_a_function_under_curry_comes_back_where_its_name_is_another_function_now(start_kernel):
    """toolz stores the name of such a function, which stands for another one, or for nothing, when it is loaded."""
    kernel = start_kernel()
    run_all(
        kernel,
        textwrap.dedent("""
            import toolz
            log = []
            @toolz.curry
            def add(one, other, held=log):
                held.append(one)
                return one + other
            five = add(5)
        """),
    )
    run_all(kernel, "first = 1")
    run_all(kernel, "@toolz.curry\ndef add(one, other): return -one - other\nlog.append(0)")
    run_all(kernel, "del add")

    run_all(kernel, "%ctx goto 2")
    assert kernel.evaluate("(add(1)(2), five(1), log, five.func is add.func)") == "(3, 6, [1, 5], True)"
    run_all(kernel, "%ctx goto 3")
    assert kernel.evaluate("(add(1, 2), five(1), log)") == "(-3, 6, [0, 5])"
    kernel.stop()

    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate("(add(1, 2), five(1))") == "(-3, 6)"


def test_listeners_that_a_signal_of_psygnal_refers_to_weakly_are_named_and_their_changes_found(start_kernel):
    """psygnal stores a signal without them, and keeps all that it has in attributes of C, which no walk sees."""
    kernel = start_kernel()
    run_all(
        kernel,
        textwrap.dedent("""
            import psygnal
            class Source:
                sent = psygnal.Signal(int)
            class Listener:
                def __init__(self): self.got = []
                def take(self, value): self.got.append(value)
            source, listener, log = Source(), Listener(), []
            for one in (listener.take, log.append): source.sent.connect(one)
        """),
    )
    for cell in ("x = 1", "source.sent.emit(4)", "x = 2", "source.sent.emit(5)"):
        assert run_all(kernel, cell).stdout == ""
    for at, expected in ((4, "[4]"), (2, "[]"), (5, "[4, 5]")):
        told = run_all(kernel, f"%ctx goto {at}").stdout
        assert kernel.evaluate("listener.got") == expected
        assert "source" in named_by(told, ("source",)), told
    kernel.stop()

    kernel = start_kernel()
    assert "source" in named_by(run_all(kernel, "%ctx resume").stdout, ("source",))
    assert kernel.evaluate("(listener.got, len(source.sent))") == "([4, 5], 0)"


def test_quantities_belong_to_the_registry_of_their_state(start_kernel):
    """Pint makes a class for each registry, and what it stores of a quantity says nothing of that class."""
    kernel = start_kernel()
    run_all(kernel, "import pint; units = pint.UnitRegistry(); length = 3 * units.meter", "x = 1")
    run_all(kernel, "more = length + 5 * units.foot; length = None", "%ctx goto 2")

    assert kernel.evaluate("(str(length + 2 * units.meter), length._REGISTRY is units)") == "('5 meter', True)"


def test_a_column_of_a_frame_of_geometries_comes_back_with_the_frame(start_kernel, tmp_path):
    """They share an array whose elements say themselves how they are stored: it is compared by its content."""
    kernel = start_kernel()
    makes = "frame = geopandas.GeoDataFrame({'v': [1, 2]}, geometry=geopandas.points_from_xy([1, 2], [3, 4]))"
    run_all(kernel, f"import geopandas\n{makes}", "column = frame.geometry", "frame.loc[0, 'v'] = 7", "import time")
    run_all(kernel, "frame.loc[0, 'geometry'] = frame.loc[1, 'geometry']", "%ctx goto 4")
    kernel.stop()

    again = start_kernel(tmp_path)
    told = again.run("%ctx resume").stdout

    assert not named_by(told, ("frame", "column"))
    assert again.evaluate("(str(frame.loc[0, 'geometry']), frame.v.tolist(), str(column[1]))") == (
        "('POINT (1 3)', [7, 2], 'POINT (2 4)')"
    )


def test_a_dataset_whose_file_was_closed_since_is_named_by_the_return(kernel):
    """A cell that closes the file does not mention the dataset."""
    run_all(kernel, "import h5py\nfile = h5py.File('a.h5', 'w'); data = file.create_dataset('d', data=[1, 2])")
    run_all(kernel, "file.close()")

    assert named_by(run_all(kernel, "%ctx goto 1").stdout, ("file", "data")).keys() == {"file", "data"}
    assert kernel.evaluate("bool(data)") == "False"


def test_a_dataset_of_xarray_that_reads_its_file_when_needed_comes_back_also_in_a_new_kernel(start_kernel):
    kernel = start_kernel()
    makes = "xr.Dataset({'t': ('x', np.arange(3.0))}, attrs={'of': 'first'}).to_netcdf('t.nc', engine='scipy')"
    run_all(kernel, f"import numpy as np, xarray as xr\n{makes}")
    run_all(kernel, "data = xr.open_dataset('t.nc', engine='scipy')")
    run_all(kernel, "data.attrs['of'] = 'second'; data['double'] = data.t * 2; data.t.encoding.clear()")

    run_all(kernel, "%ctx goto 2")

    shown = "(data.attrs['of'], [*data], float(data.t.sum()))"
    expected = "('first', ['t'], 3.0)"
    assert kernel.evaluate(shown) == expected
    kernel.stop()
    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate(shown) == expected


def test_a_type_of_elements_that_numpy_has_once_is_the_same_object_after_a_return(start_kernel):
    kernel = start_kernel()
    kinds = "[np.dtype('f8'), np.float64(1).dtype, np.dtype('M8[s]'), np.dtype([('a', 'i4')]), np.dtype('>i2')]"
    run_all(kernel, f"import numpy as np; kinds = {kinds}; noted = np.dtype('f8', metadata={{'unit': 'm'}})")
    run_all(kernel, "del kinds, noted")

    run_all(kernel, "%ctx goto 1")

    assert kernel.evaluate(f"kinds == {kinds}") == "True"
    assert kernel.evaluate("(kinds[0] is kinds[1] is np.dtype('f8'), dict(noted.metadata))") == "(True, {'unit': 'm'})"
