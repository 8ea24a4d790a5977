"""The asynchronous client of a kernel: it waits for messages and sends others meanwhile."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from nbformat.v4 import new_notebook

from ctxkernel.cli.kernel import OwnKernel


def test_a_reply_that_arrives_while_another_message_is_sent_is_not_missed(tmp_path: Path):
    """An Output widget's client sends while it waits for the reply of the cell."""

    async def replies() -> int:
        got = 0
        with tempfile.TemporaryFile() as log:
            async with OwnKernel.started(new_notebook(), tmp_path, {}, log) as kernel:
                client = kernel.kc
                assert client is not None
                for _ in range(5):
                    client.execute("pass")
                    waits = asyncio.ensure_future(client.shell_channel.get_msg())
                    await asyncio.sleep(0)
                    time.sleep(0.05)  # noqa: ASYNC251  (the reply arrives, and the event loop has not seen it yet)
                    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": "none", "data": {}}))
                    await asyncio.wait_for(waits, 20)
                    got += 1
        return got

    assert asyncio.run(replies()) == 5
