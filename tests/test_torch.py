"""PyTorch in a return: memory that tensors share, modules, optimizers and graphs, on the CPU and on a GPU.

Each row is a state, a change of it, and an expression that shows all of the state that counts.
"""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from kernels import RunningKernel
from optional_libraries import optional

from ctxkernel.state.tracking.groups import Moment
from ctxkernel.state.types import tensors
from ctxkernel.state.types.memory_blocks import MemoryBlock, MemoryBlocks
from ctxkernel.state.types.packer import Packer

torch: Any = optional("torch")
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="run on a machine with a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=on_a_gpu)]
MODEL = "m = nn.Linear(3, 1).to(D); opt = torch.optim.Adam(m.parameters(), lr=0.1); x = torch.ones(4, 3, device=D)"
TRAIN = "for _ in range(3):\n    opt.zero_grad(); m(x).pow(2).mean().backward(); opt.step()"
LEARNED = (
    "(m.weight.tolist(), m.weight.grad.tolist(), [k is p for k, p in zip(opt.state, m.parameters())],"
    " opt.param_groups[0]['params'][0] is m.weight, [s['exp_avg'].tolist() for s in opt.state.values()])"
)
HOOKS = "(w is m.weight, w.tolist(), len(w._backward_hooks or ()), handle.id in (w._backward_hooks or ()), len(seen))"

# state · change · what counts
ROWS = {
    "a view": ("a = torch.arange(9., device=D); b = a[2:5]", "b[0] = 7", "(a.tolist(), b.data_ptr() - a.data_ptr())"),
    "data of a tensor that requires a gradient": (
        "p = torch.ones(3, device=D, requires_grad=True); d = p.data",
        "d[0] = 5",
        "(p.tolist(), p.data_ptr() == d.data_ptr(), p.requires_grad)",
    ),
    "a complex view": (
        "z = torch.ones(3, device=D).to(torch.cfloat) * 1j; c = z.conj()",
        "z[0] = 2",
        "(z.tolist(), c.tolist(), c.is_conj(), c.data_ptr() == z.data_ptr())",
    ),
    "a sparse tensor": (
        "s = torch.eye(3, device=D).to_sparse(); v = s._values()",
        "v[0] = 4",
        "(s.to_dense().tolist(), v.data_ptr() == s._values().data_ptr())",
    ),
    "a subclass": (
        "class T(torch.Tensor): pass\nt = torch.ones(3, device=D).as_subclass(T); b = t.as_subclass(torch.Tensor)",
        "b[1] = 7",
        "(t.tolist(), type(t).__name__, t.data_ptr() == b.data_ptr())",
    ),
    "a storage": (
        "t = torch.ones(3, device=D); s = t.untyped_storage()",
        "t[0] = 9",
        "(t.tolist(), s.data_ptr() == t.data_ptr())",
    ),
    "a tensor of the inference mode": (
        "with torch.inference_mode():\n    t = torch.ones(3, device=D) * 2",
        "t = torch.zeros(3)",
        "(t.tolist(), t.is_inference())",
    ),
    "a gradient that a backward pass of another cell changes": (
        "m = nn.Linear(2, 1).to(D); loss = m(torch.ones(3, 2, device=D)).sum()",
        "loss.backward()",
        "(m.weight.tolist(), m.weight.grad is None)",
    ),
    "a gradient of a frozen parameter": (
        "p = nn.Parameter(torch.ones(2, device=D)); p.sum().backward(); p.requires_grad_(False)",
        "p.grad.zero_()",
        "(p.grad.tolist(), p.requires_grad)",
    ),
    "an optimizer": (f"{MODEL}\n{TRAIN}", TRAIN, LEARNED),
    "hooks of an optimizer, and an attribute": (
        f"{MODEL}; seen = []; handle = opt.register_step_post_hook(lambda *_: seen.append(1)); opt.mine = 1",
        "opt.mine = 2; handle.remove()",
        "(opt.mine, len(opt._optimizer_step_post_hooks))",
    ),
    "a scheduler": (
        f"{MODEL}; s = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5); opt.step(); s.step()",
        "opt.step(); s.step()",
        "(s.last_epoch, opt.param_groups[0]['lr'], s.optimizer is opt, hasattr(opt.step, '_wrapped_by_lr_sched'))",
    ),
    "hooks of a parameter": (
        f"{MODEL}; w = m.weight; seen = []; handle = w.register_hook(lambda g: seen.append(1))",
        "handle.remove(); w.data.zero_()",
        HOOKS,
    ),
    "a generator": (
        "g = torch.Generator(D).manual_seed(5); r = torch.rand(2, generator=g, device=D)",
        "r = torch.rand(3, generator=g, device=D)",
        "(g.get_state().tolist()[:40], r.tolist())",
    ),
    "settings": (
        "torch.set_float32_matmul_precision('high'); torch.set_default_device(D); torch.set_num_threads(1)",
        "torch.set_float32_matmul_precision('highest'); torch.set_default_device(None); torch.set_num_threads(2)",
        "(torch.get_float32_matmul_precision(), torch.zeros(1).device.type, torch.get_num_threads())",
    ),
}
ON_THE_CPU = {
    "an array of a tensor": (
        "t = torch.zeros(4); n = t.numpy()",
        "n[1] = 3",
        "(t.tolist(), n.tolist(), t.data_ptr() == n.ctypes.data)",
    ),
    "a tensor of an array": (
        "n = np.zeros(4); t = torch.from_numpy(n); v = t[1:]",
        "n[1] = 3",
        "(n.tolist(), t.tolist(), t.data_ptr() == n.ctypes.data, v.data_ptr() - t.data_ptr())",
    ),
    "a tensor of a part of an array": (
        "n = np.arange(8.).reshape(2, 4); t = torch.from_numpy(n[1])",
        "n[1, 1] = 3",
        "(n.tolist(), t.tolist(), t.data_ptr() - n.ctypes.data)",
    ),
    "a large tensor of an array": (
        "n = np.zeros(100_000); t = torch.from_numpy(n)[10:]",
        "n[11] = 3",
        "(n.sum(), t.sum().item(), t.data_ptr() - n.ctypes.data)",
    ),
    "the generator of the process": ("g = torch.default_generator", "torch.rand(2)", "g is torch.default_generator"),
    "shared memory": ("t = torch.zeros(4).share_memory_()", "t[1] = 1", "(t.tolist(), t.is_shared())"),
}
ALL = [
    *(pytest.param(device, *row, id=name) for name, row in ON_THE_CPU.items() for device in ("cpu",)),
    *(
        pytest.param(*each.values, *row, marks=each.marks, id=f"{name}-cuda")
        for name, row in ROWS.items()
        for each in DEVICES[1:]
    ),
    *(pytest.param("cpu", *row, id=name) for name, row in ROWS.items()),
]


@pytest.fixture
def begun(shared_kernel: RunningKernel) -> Any:
    """Run cells in a kernel that all rows share; each begins at the same state."""

    def run(cell: str) -> str:
        ran = shared_kernel.run(textwrap.dedent(cell))
        assert ran.status == "ok", (cell, ran.outputs)
        return ran.stdout

    if shared_kernel.evaluate("'nn' in globals()") == "False":
        run("import numpy as np, torch; from torch import nn; torch.manual_seed(0)")
        run("%ctx checkpoint begin")
    run("%ctx goto begin")
    return run


@pytest.mark.parametrize(("device", "state", "change", "shown"), ALL)
def test_a_return_restores_it_exactly(begun: Any, shared_kernel: RunningKernel, device, state, change, shown):
    for cell in (f"D = {device!r}", state, "k = 1", "%ctx checkpoint here"):
        begun(cell)
    before = shared_kernel.evaluate(shown)
    begun(change)
    later = shared_kernel.evaluate(shown)

    begun("%ctx goto here")
    assert shared_kernel.evaluate(shown) == before
    begun("%ctx undo")
    assert shared_kernel.evaluate(shown) == later
    begun("k = 2")
    begun("%ctx goto here")
    assert shared_kernel.evaluate(shown) == before


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_without_its_graph_is_named_and_cannot_be_mistaken(begun, shared_kernel, device):
    """A leaf in its place would take the gradients that belong to the parameters."""
    begun(f"x = torch.ones(3, device={device!r}, requires_grad=True); import time; time.sleep(0); y = (x * 2).sum()")
    begun("%ctx checkpoint here")
    begun("y = (x + x).sum()")
    said = begun("%ctx goto here")

    assert "not restored: y (its graph of autograd cannot be stored" in said
    assert shared_kernel.evaluate("(y.item(), y.requires_grad)") == "(6.0, False)"


def test_a_tensor_that_lives_keeps_its_graph(begun, shared_kernel):
    begun("w = torch.ones(2, requires_grad=True); y = (w * 2).sum()")
    begun("k = 1")
    begun("%ctx checkpoint here")
    begun("k = 2")
    begun("%ctx goto here")
    assert shared_kernel.evaluate("y.grad_fn is not None") == "True"


def test_the_objects_of_torch_that_look_like_modules_are_not_the_users(begun):
    """`torch.ops` has the file "_ops.py". A return reported its content, and a new kernel replaced it."""
    begun("a = torch.ones(2)")
    begun("%ctx checkpoint here")
    begun("a += 1; torch.ops.aten.add(a, a)")
    assert "torch.ops" not in begun("%ctx goto here")


def test_a_model_that_a_resumed_kernel_makes_anew_is_not_taken_for_the_old_one():
    from ctxkernel.replay.causes import ALIASES

    assert ALIASES["nn"] == "torch.nn"


def test_memory_of_a_device_is_copied_again_only_where_it_changed():
    values, copies = torch.arange(2_000_000, dtype=torch.int32), {}

    def copied() -> Any:
        storage = values.untyped_storage()
        return tensors.DeviceMemory(storage, storage.data_ptr(), storage.nbytes(), copies).data

    first = copied()
    assert copied() is first
    assert first == memoryview(values.numpy().tobytes())
    values[1_999_999] = 5
    assert copied() is not first
    values[[3, 4]] = values[[4, 3]]
    assert copied() == memoryview(values.numpy().tobytes())
    assert len(copies) == 1


@pytest.mark.parametrize("change", [0.0, -0.0, 1e-300, -1.0])
def test_the_hash_of_memory_on_a_device_tells_contents_apart(change: float):
    values = torch.ones(1000, dtype=torch.float64)
    known = tensors._hash(values.view(torch.uint8))
    values[[1, 7]] = change

    assert tensors._hash(values.view(torch.uint8)) != known
    values[[1, 7]] = 1.0
    assert tensors._hash(values.view(torch.uint8)) == known


def test_blocks_of_memory_are_found_by_their_addresses_and_widened():
    blocks = MemoryBlocks()
    blocks.add(MemoryBlock("a", 100, 50))
    blocks.add(inner := MemoryBlock("b", 200, 10))

    assert blocks.find(205, 210) is inner
    assert blocks.find(205, 211) is None
    wide = blocks.widen(190, 230)
    assert (wide.address, wide.nbytes) == (190, 40)
    assert blocks.find(205, 210) is wide
    assert id(inner) in blocks.replaced


@on_a_gpu
def test_a_forked_process_names_memory_of_a_device_that_was_not_copied():
    values = {"t": torch.ones(3, device="cuda"), "n": [1]}
    packer = Packer({"__name__": "__main__", **values})
    packer.is_forked = True
    moment = Moment(packer, values.get)
    moment.pack([("t",), ("n",)])

    assert "could not be copied in time" in moment.pieces["t"].packed.faults["t"]
    assert not moment.pieces["n"].packed.faults


@on_a_gpu
def test_memory_of_a_device_that_is_too_large_is_named(monkeypatch):
    monkeypatch.setattr(tensors, "MOST_BYTES", 1000)
    values = {"t": torch.ones(1000, device="cuda"), "u": torch.ones(10, device="cuda")}
    moment = Moment(Packer({"__name__": "__main__", **values}), values.get)
    moment.pack([("t",), ("u",)])

    assert "memory of a device" in moment.pieces["t"].packed.faults["t"]
    assert not moment.pieces["u"].packed.faults


@on_a_gpu
def test_memory_of_a_device_comes_back_on_the_cpu_where_there_is_none(start_kernel):
    first = start_kernel()
    first.run("import torch; t = torch.arange(3., device='cuda'); v = t[1:]")
    first.run("k = 1")
    first.stop()
    second = start_kernel(env={"CUDA_VISIBLE_DEVICES": ""})
    said = second.run("%ctx resume").stdout

    assert "not restored: t (" in said
    assert second.evaluate("(t.tolist(), v.tolist(), t.device.type)") == "([0.0, 1.0, 2.0], [1.0, 2.0], 'cpu')"
