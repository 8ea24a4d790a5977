"""Context objects: what the user holds as handles and the scheduler sees as nodes."""

from ctxkernel.core.nodes.graph import Graph
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import Async, Freq, NodeBase, Periodic, Sync
from ctxkernel.core.nodes.note import NoteHandle
from ctxkernel.core.nodes.view_handle import ViewHandle

__all__ = ["Async", "Freq", "Graph", "GroupHandle", "NodeBase", "NoteHandle", "Periodic", "Sync", "ViewHandle"]
