"""A second place for sessions: the log and the checkpoint data of each, in a folder that fsspec reaches.

    remote_files   files by name, in a folder or behind a URL (`s3://…`)
    head           what the mirror has of one session: a small JSON file
    pushing        this machine → mirror; only what the mirror lacks
    pulling        mirror → this machine; every chunk is checked by its address

    <store>/<folder of the session>/head.json        written last, so a reader never sees half of a push
    <store>/<folder of the session>/blobs/<hash>     parts of the log and of packs, by content

Rule 1: a push never removes data of packs: what was thinned here, or was lost with a machine, can be pulled back.
Rule 2: a push replaces a head only if the log here has the statement where that head ends.
Rule 3: nothing that was pulled is trusted for that: rows of the log have their signatures, and chunks their addresses.
"""

from ctxkernel.store.mirror.head import MirrorHead, list_heads
from ctxkernel.store.mirror.pulling import Pulled, pull_data, pull_session
from ctxkernel.store.mirror.pushing import Pushed, push_session
from ctxkernel.store.mirror.remote_files import RemoteFiles

__all__ = [
    "MirrorHead",
    "Pulled",
    "Pushed",
    "RemoteFiles",
    "list_heads",
    "pull_data",
    "pull_session",
    "push_session",
]
