"""The MCP server: an agent of the user's works in her live kernel, on the same timeline (`ctxkernel mcp`).

`command` reads the arguments, `server` serves the `tools`, `desk` is the notebook that they act on, `live` finds the
kernel and sends cells to it, `agent_texts` makes the answers from the session.
"""
