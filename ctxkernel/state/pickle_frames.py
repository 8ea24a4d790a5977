"""How frames and tensors are taken apart and put together: pandas, Arrow, torch. Imports none of them.

Rule 1: their memory is stored as that of arrays is (`state.pickle_arrays`): once, and shared again.
Rule 2: pandas keeps in mind which frames share memory, so that a write to one copies first: so must what is restored.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ctxkernel.state.pickle_arrays import Block
from ctxkernel.state.pickle_core import Part, Reduction
from ctxkernel.state.pickle_instances import careful

if TYPE_CHECKING:
    from ctxkernel.state.reducers import Kind, Taking

_FRAME_BLOCK = Part("frame_block")
_REFERENCES = Part("frame_references")
_INDEX_REFERENCES = Part("index_references")
_NEW = Part("new")
_FILL = Part("fill")
_ARROW = Part("arrow")
_TENSOR = Part("tensor")
_FILL_TENSOR = Part("fill_tensor")


# -- pandas -------------------------------------------------------------------------------------


def frame_block(taking: Taking, obj: Any) -> Reduction:
    """A block of a frame: its values, and who else has them."""
    refs = obj.refs
    shared = refs if refs is not None and _alive(refs) > 1 else None
    return _FRAME_BLOCK, (obj.values, obj.mgr_locs.indexer, obj.ndim, shared)


def _alive(refs: Any) -> int:
    return sum(one() is not None for one in refs.referenced_blocks)


def series_manager(taking: Taking, obj: Any) -> Reduction:
    """What a Series is made of. pandas would store the values alone, and not who else has them."""
    return type(obj), (obj.blocks[0], obj.axes[0])


def references(taking: Taking, obj: Any) -> Reduction:
    """What pandas keeps of who shares a block: made anew, as each block enters itself."""
    return _REFERENCES, ()


def index(taking: Taking, obj: Any) -> Reduction:
    """An Index, which may share its values with a frame."""
    reduction = careful(taking, obj)
    refs = getattr(obj, "_references", None)
    if refs is None or _alive(refs) < 2 or any(one is not None for one in reduction[2:]):
        return reduction
    return (*reduction[:2], refs, None, None, _INDEX_REFERENCES)


def arrow_extension(taking: Taking, obj: Any) -> Reduction:
    """An array of pandas over one of Arrow. pandas would copy its pieces into one."""
    return _NEW, (type(obj),), (dict(obj.__dict__), None, None, None), None, None, _FILL


# -- arrow --------------------------------------------------------------------------------------


def arrow(taking: Taking, obj: Any) -> Reduction:
    """An Array of pyarrow: the buffers that it looks into, which others may look into too."""
    pyarrow = sys.modules["pyarrow"]
    kind, buffers = obj.type, obj.buffers()
    simple = not (kind.num_fields or isinstance(kind, pyarrow.DictionaryType | pyarrow.BaseExtensionType))
    if not simple or "view" in str(kind) or not all(one is None or one.is_cpu for one in buffers):
        return careful(taking, obj)
    # A list of what is missing that lists nothing stays only where its count is said to be unknown.
    nulls = -1 if buffers and buffers[0] is not None else obj.null_count
    return _ARROW, (kind, len(obj), nulls, obj.offset, [_arrow_memory(taking, one) for one in buffers])


def _arrow_memory(taking: Taking, buffer: Any) -> Any:
    if buffer is None:
        return None
    if not buffer.size:
        return None, 0, 0
    held = memory_of(taking, buffer, buffer.address, buffer.size)
    return held, buffer.address - held.address, buffer.size


def memory_of(taking: Taking, holder: Any, start: int, size: int) -> Block:
    """Return the memory that holds this part of itself."""
    for known in taking.blocks:
        if size and known.holds(start, start + size):
            return known
    made = Block(holder, start, size)
    taking.blocks.append(made)
    return made


# -- torch --------------------------------------------------------------------------------------


def tensor(taking: Taking, obj: Any) -> Reduction:
    """A tensor: its storage is memory that others may look into."""
    torch = sys.modules["torch"]
    plain = (
        type(obj) in (torch.Tensor, torch.nn.Parameter)
        and obj.device.type == "cpu"
        and obj.layout is torch.strided
        and not obj.is_quantized
        and not obj.is_conj()
        and not obj.is_neg()
        and obj.is_leaf
    )
    if not plain:
        return careful(taking, obj)
    storage = obj.untyped_storage()
    start, size = storage.data_ptr(), storage.nbytes()
    held = memory_of(taking, storage, start, size)
    shift = start - held.address
    kind = str(obj.dtype).partition(".")[2]
    args = (held, shift, size, kind, obj.storage_offset(), tuple(obj.shape), obj.stride(), obj.requires_grad)
    grad = obj.grad if obj.requires_grad else None
    members = {name: value for name, value in obj.__dict__.items() if name != "grad"}
    made = _TENSOR, (type(obj) is torch.nn.Parameter, *args)
    return made if grad is None and not members else (*made, (grad, members), None, None, _FILL_TENSOR)


TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("pandas._libs.internals", "Block", frame_block),
    ("pandas._libs.internals", "BlockValuesRefs", references),
    ("pandas.core.internals.managers", "SingleBlockManager", series_manager),
    ("pandas", "Index", index),
    ("pandas.core.arrays.arrow", "ArrowExtensionArray", arrow_extension),
    ("pyarrow", "Array", arrow),
    ("torch", "Tensor", tensor),
)


# -- together again -----------------------------------------------------------------------------


class FrameParts:
    """The constructors of frames and tensors."""

    def _numpy(self) -> Any:
        raise NotImplementedError

    def frame_block(self, values: Any, placement: Any, ndim: int, refs: Any) -> Any:
        """Return a block of a frame."""
        internals: Any = importlib.import_module("pandas._libs.internals")
        made = internals._unpickle_block(values, placement, ndim)
        if refs is not None:
            refs.add_reference(made)
            made.refs = refs
        return made

    def frame_references(self) -> Any:
        """Return a list of who shares a block, still empty."""
        from pandas._libs.internals import BlockValuesRefs

        return BlockValuesRefs()

    def index_references(self, index: Any, refs: Any) -> None:
        """Say that an index shares its values with blocks, where it does."""
        np = self._numpy()
        mine = getattr(index, "_values", None)
        for one in refs.referenced_blocks:
            other = getattr(one(), "values", None)
            if isinstance(mine, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(mine, other):
                index._references = refs
                refs.add_index_reference(index)
                return

    def tensor(
        self,
        parameter: bool,
        held: Any,
        shift: int,
        size: int,
        kind: str,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        grad: bool,
    ) -> Any:
        """Return a tensor over memory."""
        torch: Any = importlib.import_module("torch")
        flat = torch.from_numpy(held[shift : shift + size]) if size else torch.empty(0, dtype=torch.uint8)
        made = torch.empty(0, dtype=getattr(torch, kind)).set_(flat.untyped_storage(), offset, shape, strides)
        if parameter:
            return torch.nn.Parameter(made, requires_grad=grad)
        return made.requires_grad_(grad) if grad else made

    def fill_tensor(self, made: Any, state: tuple[Any, dict[str, Any]]) -> None:
        """Give a tensor its gradient and attributes."""
        grad, members = state
        if grad is not None:
            made.grad = grad
        made.__dict__.update(members)

    def arrow(self, kind: Any, length: int, nulls: int, offset: int, memory: list[Any]) -> Any:
        """Return an Array of pyarrow over memory."""
        pyarrow: Any = importlib.import_module("pyarrow")
        buffers = [
            None if one is None else pyarrow.py_buffer(one[0][one[1] : one[1] + one[2]] if one[2] else b"")
            for one in memory
        ]
        return pyarrow.Array.from_buffers(kind, length, buffers, nulls, offset)
