"""The asynchronous client of a kernel."""

from __future__ import annotations

from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from traitlets import Type


class _Channel(AsyncZMQSocketChannel):
    """A channel on which a message can be sent while another coroutine waits for one."""

    def send(self, msg: dict[str, Any]) -> None:
        """Send a message.

        jupyter_client sends past asyncio, which takes the notice of a message that has arrived meanwhile: whoever waits
        for it would wait for ever. Here the socket is asked again.
        """
        super().send(msg)
        socket: Any = self.socket
        socket._schedule_remaining_events()


class KernelClient(AsyncKernelClient):
    """A client that misses no message."""

    shell_channel_class = Type(_Channel)
    control_channel_class = Type(_Channel)
    stdin_channel_class = Type(_Channel)
