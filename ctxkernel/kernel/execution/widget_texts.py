"""The text of a widget as it is when its cell ends: a display holds the text of its beginning.

A progress bar of `tqdm.notebook` is a widget whose display is sent at 0 %, and that is updated by messages of its own.
"""

from __future__ import annotations

from ctxkernel.state.types.widget_models import living_widgets

_LIBRARIES = ("ipywidgets", "tqdm")
"""Only their widgets are asked: the representation of a class of the user's may do anything."""
MOST_CHARS = 2000


def widget_text(model_id: object) -> str | None:
    """Return the text of the living widget with this id, as IPython shows it; None if there is none."""
    widget = living_widgets().get(model_id) if isinstance(model_id, str) else None
    if widget is None or type(widget).__module__.partition(".")[0] not in _LIBRARIES:
        return None
    try:
        text = str(widget._repr_mimebundle_()["text/plain"])
    except Exception:  # the widget is half closed, or of another version: the text of its display stays
        return None
    return text[:MOST_CHARS]
