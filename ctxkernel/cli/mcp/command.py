"""`ctxkernel mcp`: let an agent work in the live kernel of a notebook, over MCP.

Rule 1: over stdio, standard output belongs to the protocol. Over HTTP it listens on loopback only, with a token.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from pathlib import Path
from typing import Any

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import say
from ctxkernel.cli.read import check_notebook


def mcp(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel mcp`."""
    notebook: Path | None = arguments.notebook
    connection: Path | None = arguments.kernel
    if notebook is not None and connection is not None:
        raise Unusable("give the notebook, or the connection file of a live kernel with --kernel, but not both")
    if notebook is not None:
        check_notebook(notebook)
    if connection is not None and not connection.is_file():
        raise Unusable(f"{connection}: there is no such connection file; `jupyter --runtime-dir` tells where they are")
    try:
        from ctxkernel.cli.mcp.live import LiveKernel, notebook_of
        from ctxkernel.cli.mcp.server import make_server
    except ModuleNotFoundError as missing:
        if missing.name not in ("mcp", "uvicorn"):
            raise
        raise Failed(
            f"`ctxkernel mcp` needs the package {missing.name}: pip install 'jupyter-ctxkernel[mcp]'"
        ) from None
    if connection is not None and (found := notebook_of(connection)) is not None and found.is_file():
        notebook = found
    kernel = LiveKernel(notebook, connection, mode=arguments.mode, may_start=not arguments.attach)
    server = make_server(kernel, is_open=notebook is None and connection is None)
    if arguments.http:
        _serve(server, arguments.port)
    else:
        server.run("stdio")
    return 0


def _serve(server: Any, port: int) -> None:
    import uvicorn

    from ctxkernel.cli.mcp.server import with_token

    token = secrets.token_urlsafe(32)
    app = with_token(server.streamable_http_app(host="127.0.0.1"), token)
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="on")
    made = uvicorn.Server(config)

    async def serve() -> None:
        startup = made.startup

        async def tell(*given: Any, **named: Any) -> None:
            await startup(*given, **named)
            if made.started:
                at = made.servers[0].sockets[0].getsockname()[1]
                say(f"http://127.0.0.1:{at}/mcp")
                say(f"Authorization: Bearer {token}")

        made.startup = tell
        await made.serve()

    asyncio.run(serve())
