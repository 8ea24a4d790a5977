"""The magics `%ctx`, `%view`, `%group` and `%%ask`."""
