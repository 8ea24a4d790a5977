"""Members of enumerations of the user's: their class holds them, so a living class keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkernel.core.reflection import class_dict, class_of

EnumKey = str | tuple[int | str]
"""The name of a member, or in a tuple the value of a combination of flags."""


def enum_key(obj: Any) -> EnumKey | None:
    """Return the key under which the class of a member holds it; None where it does not hold it."""
    attributes: dict[str, Any] = obj.__dict__
    name, value = attributes.get("_name_"), attributes.get("_value_")
    keys: list[Any] = [name] if class_of(name) is str else []
    keys += [(value,)] if class_of(value) in (int, str) else []
    return next((key for key in keys if enum_held(class_dict(class_of(obj)), key) is obj), None)


def enum_held(members: Mapping[str, Any], key: EnumKey) -> Any:
    """Return the object that an enumeration with these members holds under a key, or None."""
    if isinstance(key, str):
        return members.get("_member_map_", {}).get(key)
    return members.get("_value2member_map_", {}).get(key[0])
