"""The MCP server: an agent of the user's works in her live kernel, on the same timeline (`ctxkernel mcp`).

`command` reads the arguments, `server` defines the tools, `live` finds the kernel and sends cells to it, `texts` makes
the answers from the session.
"""
