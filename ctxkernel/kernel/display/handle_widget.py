"""The widget of a handle. Import it late: it costs 0.2 s, and a run without a front end shows no widget.

Rule: a page is untrusted. What it sets is checked before the handle takes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import anywidget
import traitlets

from ctxkernel.core.errors import CtxError
from ctxkernel.core.nodes.node_base import parse_lod, parse_tokens
from ctxkernel.core.nodes.observed import WIDGET_TRAITS
from ctxkernel.core.nodes.policy import parse_pos
from ctxkernel.kernel.messages.page_input import short_text

FOLDER = Path(__file__).parents[2] / "lab"
STYLES = ("widget/handle.css", "app/rendering.css")
POLICY_TRAITS = WIDGET_TRAITS[:-1]
_BASE: Any = anywidget.AnyWidget


@functools.cache
def widget_module() -> str:
    """Return the widget's script as one module without comments: each widget contains a copy."""
    from ctxkernel.export.bundle import bundle_modules

    return bundle_modules(FOLDER / "widget/handle.js", comments=False)


class HandleWidget(_BASE):
    """Shows one handle, in every output that displays it, and changes it where a trait is set."""

    _esm: Any = widget_module()
    _css: Any = "".join((FOLDER / name).read_text(encoding="utf-8") for name in STYLES)
    facts: Any = traitlets.Dict().tag(sync=True)
    own_id: Any = traitlets.Unicode().tag(sync=True)
    """Its `model_id`, which a page cannot read otherwise."""
    lod: Any = traitlets.Int().tag(sync=True)
    tokens: Any = traitlets.Int(allow_none=True).tag(sync=True)
    pos: Any = traitlets.Union([traitlets.Int(), traitlets.Unicode()], allow_none=True).tag(sync=True)
    running: Any = traitlets.Bool().tag(sync=True)
    rendered: Any = traitlets.Unicode(read_only=True).tag(sync=True)
    """The beginning of the rendering, with secrets masked."""
    blocks: Any = cast("Any", traitlets).List(read_only=True).tag(sync=True)
    """The same as blocks, for the page."""
    value: Any = traitlets.Unicode(read_only=True)
    """As `rendered`: the argument of the function in `interactive_output`."""
    follows_handle = True

    def __init__(
        self, set_policy: Callable[[str, object], None], obj_id: str, model_id: str, state: Mapping[str, Any]
    ) -> None:
        self._set_policy, self._first, self.obj_id = set_policy, state, obj_id
        stock: Any = super()
        stock.__init__(own_id=model_id, model_id=model_id)

    def open(self) -> None:
        """Open the comm, with the state of the handle."""
        self.follow(self._first)
        stock: Any = super()
        stock.open()

    def follow(self, state: Mapping[str, Any]) -> None:
        """Show the state of the handle: all traits change before the first observer is called."""
        with self.hold_sync(), self.hold_trait_notifications():
            for name, value in {**state, "value": state["rendered"]}.items():
                self.set_trait(name, value)

    def follow_return(self, state: Mapping[str, Any]) -> None:
        """Show the state of the handle after a return: no observer is called, since HEAD has their effects."""
        self._trait_values.update({**state, "value": state["rendered"]})
        self.send_state([*state])

    def get_interact_value(self) -> str:
        """Return the argument of a function in `interactive_output`."""
        return self.rendered

    @traitlets.validate("lod", "tokens", "pos")
    def _check(self, proposal: Any) -> Any:
        try:
            return checked_trait(proposal.trait.name, proposal.value)
        except CtxError as refusal:
            raise traitlets.TraitError(str(refusal)) from None

    @traitlets.observe("lod", "tokens", "pos", "running")
    def _set(self, change: Any) -> None:
        try:
            self._set_policy(change.name, change.new)
        except BaseException:
            self._trait_values[change.name] = change.old
            self.send_state(change.name)
            raise

    def set_state(self, sync_data: Any) -> None:
        """Take what a page sets of the policy; what is refused goes back to the page as it was."""
        state = {name: sync_data[name] for name in POLICY_TRAITS if name in sync_data}
        if isinstance(pos := state.get("pos"), str):
            state["pos"] = short_text(pos)
        stock: Any = super()
        try:
            stock.set_state(state)
        except Exception:  # raised again: ipykernel logs it
            self.send_state([*state])
            raise


def checked_trait(name: str, value: Any) -> Any:
    """Return the value of a trait. Raises BadPolicy where no handle has such a policy."""
    if name == "lod":
        return parse_lod(value)
    if value is not None:  # no limit, or a group's position
        parse_tokens(value) if name == "tokens" else parse_pos(value)
    return value
