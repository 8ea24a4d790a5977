"""Reducers and constructors of PyTorch: tensors, their memory, optimizers. Does not import it.

Rule 1: the memory of a storage is stored once, and all tensors of it share it again.
Rule 2: the memory of a device is copied in the kernel's own process: a forked one cannot read it.
Rule 3: a graph of autograd has no stored form. A tensor that lives keeps its graph; any other comes back without it.
The tensor is named, and stored together with the leaves of its graph: a backward pass changes their gradients.
"""

from __future__ import annotations

import importlib
import secrets
import sys
from typing import Any

from ctxkernel.core.reflection import loaded
from ctxkernel.core.text import format_size
from ctxkernel.state.types.arrays import allocate
from ctxkernel.state.types.instances import careful, instance_or
from ctxkernel.state.types.memory_blocks import MemoryBlock
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, SMALL, NotCopied, OutOfTime, Reduction, StreamConstructors

MOST_BYTES = 1024 * 1024 * 1024
"""Up to so many bytes of devices are copied for one comparison."""
_HASHED = 1024 * 1024
"""From so many bytes on, memory is hashed on the device first, and a copy of equal memory is used again."""
_WIDTH = 1024 * 1024
_KEY = secrets.randbits(63)
Copies = dict[tuple[str, int, int], tuple[list[Any], memoryview]]
"""By device, address and bytes: the hash of memory, and a copy of it. The newest last."""
_DEVICES = ("cuda", "xpu")
"""Modules of torch for devices whose memory a forked process cannot read."""
_TOO_LARGE = f"it lies in the memory of a device, with more than {format_size(MOST_BYTES)} that are to be copied"
_NOT_COPIED = "it lies in the memory of a device, which could not be copied in time"


class DeviceMemory(MemoryBlock):
    """Memory of a device, and a copy of it."""

    __slots__ = ("data", "device")

    def __init__(self, storage: Any, start: int, size: int, copies: Copies) -> None:
        super().__init__(storage, start, size)
        torch = sys.modules["torch"]
        self.device = str(storage.device)
        module = getattr(torch, storage.device.type, None)
        if module is not None and hasattr(module, "synchronize"):
            module.synchronize(storage.device)  # other streams of the user's may write to it still
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        mark = _hash(flat) if size >= _HASHED else None
        found, data = copies.pop((self.device, start, size), (None, None))
        if data is None or mark is None or found != mark:
            data = memoryview(flat.cpu().numpy()).toreadonly()
        self.data: memoryview = data
        if mark is not None:
            copies[self.device, start, size] = mark, data
        while sum(one.nbytes for _, one in copies.values()) > MOST_BYTES:
            del copies[next(iter(copies))]


def _hash(flat: Any) -> list[Any] | None:
    """Return a hash of memory, made where it lies; None without room for that.

    Two contents have the same one with a chance of 2**-64: each 4 bytes are multiplied by random numbers, and added up.
    """
    torch, even = sys.modules["torch"], flat.numel() // 4 * 4
    try:
        source = torch.Generator(flat.device).manual_seed(_KEY)
        factors = torch.empty((2, _WIDTH), dtype=torch.int64, device=flat.device).random_(generator=source)
        parts = flat[:even].view(torch.int32).split(_WIDTH)
        sums = [(factors[:, : len(part)] * part.long()).sum(1) for part in parts]
        return [*torch.stack(sums).flatten().tolist(), *flat[even:].tolist()]
    except RuntimeError:
        return None


def devices_in_use() -> bool:
    """Return whether PyTorch uses a device whose memory a forked process cannot read."""
    modules = (loaded(f"torch.{name}") for name in _DEVICES)
    return any("is_initialized" in one and one["is_initialized"]() for one in modules)


def must_count() -> bool:
    """Return whether values may hold more memory of devices than is copied, so that it has to be added up first."""
    modules = [one for name in _DEVICES if "is_initialized" in (one := loaded(f"torch.{name}"))]
    used = sum(
        one["memory_allocated"](at) for one in modules if one["is_initialized"]() for at in range(one["device_count"]())
    )
    return used > MOST_BYTES


def too_large(pack: PackState) -> str:
    """Return why the memory of devices in a pack is not copied; an empty text where it is."""
    copied = sum(one.nbytes for one in pack.blocks if isinstance(one, DeviceMemory))
    return _TOO_LARGE if copied + sum(pack.counted.values()) > MOST_BYTES else ""


def tensor(pack: PackState, obj: Any) -> Reduction:
    """A tensor: its storage is memory that others may share."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        if obj.device.type not in ("cpu", "meta") and pack.no_devices:
            return pack.refuse(obj, pack.no_devices, [obj._version, tuple(obj.shape), str(obj.dtype)])
        if not obj.is_leaf:
            return _with_graph(pack, obj)
        plain = (
            type(obj) in (torch.Tensor, torch.nn.Parameter)
            and obj.device.type != "meta"
            and obj.layout is torch.strided
            and not obj.is_quantized
            and not obj.is_nested
            and not obj.is_conj()
            and not obj.is_neg()
            and not any(getattr(obj, "names", ()))
        )
        hooks = obj._backward_hooks, obj._post_accumulate_grad_hooks
        if plain:
            how = "parameter" if type(obj) is torch.nn.Parameter else "inference" if obj.is_inference() else ""
            kind = str(obj.dtype).partition(".")[2]
            shape, steps = tuple(obj.shape), obj.stride()
            args = obj.untyped_storage(), kind, obj.storage_offset(), shape, steps, obj.requires_grad, how
            members = {name: value for name, value in obj.__dict__.items() if name != "grad"}
            made = PARTS.tensor_of, args
            if obj.grad is None and not members and not any(hooks):
                return made
            return (*made, (obj.grad, members, *hooks), None, None, PARTS.fill_tensor)
    if any(hooks):
        pack.left_out.append((obj, "its hooks"))
    return careful(pack, obj)


def _with_graph(pack: PackState, obj: Any) -> Reduction:
    """A tensor that has a graph of autograd."""
    token = pack.packer.token(obj)
    pack.live[token] = obj
    pack.left_out.append((obj, "its graph of autograd"))
    grad = obj.grad if obj.retains_grad else None
    state = grad, dict(obj.__dict__), _leaves(pack, obj)
    args = pack.label(f"live:{token}"), sys.modules["torch"].Tensor.detach(obj)
    return PARTS.tensor_with_graph, args, state, None, None, PARTS.fill_tensor_with_graph


def _leaves(pack: PackState, obj: Any) -> list[Any]:
    """Return the leaves of a graph, whose gradients a backward pass changes."""
    found: list[Any] = []
    nodes: dict[Any, None] = {obj.grad_fn: None}
    todo = [obj.grad_fn]
    while todo:
        node = todo.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        for one, _ in node.next_functions:
            if one is not None and one not in nodes:
                nodes[one] = None
                todo.append(one)
        if not len(nodes) & 255 and pack.expired():
            raise OutOfTime
    return found


def storage(pack: PackState, obj: Any) -> Reduction:
    """The memory of tensors."""
    start, size, kind = obj.data_ptr(), obj.nbytes(), obj.device.type
    if kind == "meta" or not size:
        return PARTS.storage, (None, 0, size, str(obj.device))
    if kind != "cpu":
        return PARTS.storage, (_device_memory(pack, obj, start, size), 0, size, "device")
    if obj.is_shared():
        return PARTS.storage, (MemoryBlock(obj, start, size), 0, size, "shared")
    if obj.resizable() and pack.blocks.find(start, start + size) is None:
        return PARTS.storage, (MemoryBlock(obj, start, size), 0, size, "own")
    held = pack.memory(obj, start, size)
    return PARTS.storage, (held, start - held.address, size, "")


def _device_memory(pack: PackState, obj: Any, start: int, size: int) -> DeviceMemory | None:
    """Return a copy of the memory of a device. Raises NotCopied, and ValueError for one that overlaps another one."""
    found = pack.blocks.find(start, start + size)
    if found is not None and (found.address, found.nbytes) != (start, size):
        raise ValueError("it is a part of memory of a device that another object has")
    if found is None and pack.counting:
        pack.counted[start] = size
    elif found is None:
        if pack.packer.is_forked:
            raise NotCopied(_NOT_COPIED)
        pack.blocks.add(found := DeviceMemory(obj, start, size, pack.packer.device_copies))
    return found


def device_memory(pack: PackState, obj: DeviceMemory) -> Reduction:
    """The copy of a device's memory."""
    return PARTS.device_memory, (obj.device, pack.data(obj.data))


def typed_storage(pack: PackState, obj: Any) -> Reduction:
    """A storage with a type, in which torch wraps the memory of a tensor that it stores."""
    return PARTS.typed_storage, (obj._untyped_storage, str(obj.dtype).partition(".")[2])


def optimizer(pack: PackState, obj: Any) -> Reduction:
    """An optimizer. torch would leave out its hooks, and attributes that others set: a scheduler sets `step`."""
    return PARTS.new, (type(obj),), dict(obj.__dict__)


def _of_device(pack: PackState, obj: Any) -> Reduction:
    """An object of a device: alive only. CuPy would store a view as a copy."""
    return pack.refuse(obj, "it belongs to a device")


TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("torch", "Tensor", tensor),
    ("torch", "UntypedStorage", storage),
    ("torch.storage", "TypedStorage", typed_storage),
    ("torch.optim", "Optimizer", optimizer),
    ("torch", "Generator", instance_or(("torch", "default_generator"))),
    *((module, name, _of_device) for module in ("torch", "torch.cuda", "cupy.cuda") for name in ("Stream", "Event")),
    ("torch.cuda", "CUDAGraph", _of_device),
    ("cupy", "ndarray", _of_device),
    (__name__, "DeviceMemory", device_memory),
)


def _torch() -> Any:
    return importlib.import_module("torch")


class TensorParts(StreamConstructors):
    """The constructors of tensors."""

    def storage(self, held: Any, shift: int, size: int, how: str) -> Any:
        """Return the memory of tensors: `how` is "" for memory that others share, else its kind, or a device."""
        torch = _torch()
        if held is None:
            return torch.UntypedStorage(size, device=how)
        if how == "device":
            return held
        if how == "own" and size < SMALL:  # memory of torch's own can be resized
            made = torch.UntypedStorage(size, device="cpu")
            return made.copy_(torch.from_numpy(held).untyped_storage())
        made = torch.from_numpy(held[shift : shift + size]).untyped_storage()
        return made.share_memory_() if how == "shared" else made

    def device_memory(self, device: str, data: Any) -> Any:
        """Return memory of a device; of the CPU where there is no such device here. Raises MemoryError."""
        torch = _torch()
        raw = self.memory(data)
        host = allocate(memoryview(raw).nbytes)
        host[:] = memoryview(raw).cast("B")
        flat = torch.from_numpy(host.obj)
        full = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
        try:
            return flat.to(device).untyped_storage()
        except full as fault:
            raise MemoryError(f"{device} has no room for {format_size(len(host))}") from fault
        except (RuntimeError, AssertionError):
            self.said.append(f"{device} cannot be used here: its memory comes back on the CPU")
            return flat.untyped_storage()

    def typed_storage(self, held: Any, kind: str) -> Any:
        """Return a storage with a type."""
        torch = _torch()
        return torch.storage.TypedStorage(wrap_storage=held, dtype=getattr(torch, kind), _internal=True)

    def tensor_of(self, held: Any, kind: str, offset: int, shape: Any, steps: Any, grad: bool, how: str) -> Any:
        """Return a tensor over the memory of a storage. `how`: "parameter", "inference" or empty."""
        torch = _torch()
        with torch.inference_mode(how == "inference"):
            made = torch.empty(0, dtype=getattr(torch, kind), device=held.device).set_(held, offset, shape, steps)
        if how == "parameter":
            return torch.nn.Parameter(made, requires_grad=grad)
        return made.requires_grad_() if grad else made

    def tensor(
        self, param: bool, held: Any, shift: int, size: int, kind: str, offset: int, shape: Any, steps: Any, grad: bool
    ) -> Any:
        """Return a tensor over memory: of streams of earlier versions."""
        memory = self.storage(held if size else None, shift, size, "" if size else "cpu")
        return self.tensor_of(memory, kind, offset, shape, steps, grad, "parameter" if param else "")

    def fill_tensor(self, made: Any, state: tuple[Any, ...]) -> None:
        """Give a tensor its gradient, its attributes and its hooks."""
        grad, members, *hooks = state
        if grad is not None:
            made.grad = grad
        made.__dict__.update(members)
        for name, found in zip(("_backward_hooks", "_post_accumulate_grad_hooks"), hooks, strict=False):
            if found:
                setattr(made, name, found)

    def tensor_with_graph(self, number: int, detached: Any) -> Any:
        """Return the living tensor, or one that has no graph."""
        found = self.living(number)
        if found is None:
            self.said.append("the graph of a tensor")
        return detached if found is None else found

    def fill_tensor_with_graph(self, made: Any, state: tuple[Any, ...]) -> None:
        """Give a tensor that lost its graph its gradient and attributes. The leaves were stored for comparisons."""
        if made.is_leaf:
            self.fill_tensor(made, state[:2])
