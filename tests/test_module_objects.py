"""Objects that are stored as the name that a module has for them."""

from __future__ import annotations

import numpy as np
import scipy.special

from ctxkernel.state.types import module_objects


def test_the_modules_of_many_universal_functions_are_found_in_one_search(monkeypatch):
    """They do not say where they are from. A function of SymPy's `lambdify` has 900 of them as its globals."""
    functions = [one for one in vars(scipy.special).values() if isinstance(one, np.ufunc)]
    asked: list[str] = []
    real = module_objects.in_module
    monkeypatch.setattr(module_objects, "_HOLDERS", {})
    monkeypatch.setattr(module_objects, "in_module", lambda *place: asked.append(place[0]) or real(*place))

    found = [module_objects.holder_of(one, one.__name__, but=("__main__",)) for one in functions]

    assert all(real(module, one.__name__) is one for module, one in zip(found, functions, strict=True))
    assert len(functions) > 100
    assert len(asked) <= 3 * len(functions)
