"""The histories of `history.py` through the view of openhands-sdk: run by it, in an environment of its own.

    python openhands_driver.py SIZE …

Building the events is not measured. A size that took more than `PATIENCE` seconds is the last one of its share.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import time
from typing import Any

from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, AgentErrorEvent, MessageEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent, ThinkingBlock

SHARES = (0, 20, 100)
PATIENCE = 20.0


def message(role: str, text: str) -> Any:
    content = [TextContent(text=text)]
    return MessageEvent(source="user" if role == "user" else "agent", llm_message=Message(role=role, content=content))


def history(size: int, share: int) -> list[Any]:
    """The same questions, rounds and calls."""
    events: list[Any] = []
    rounds = 0
    while len(events) < size:
        events.append(message("user", "why do residuals drift?"))
        for _ in range(4):
            rounds += 1
            calls = 2 if rounds % 5 == 0 else 1
            thinks = rounds * share // 100 > (rounds - 1) * share // 100
            thinking = [ThinkingBlock(thinking="let me see", signature="c2ln")] if thinks else []
            for n in range(calls):
                call = MessageToolCall(id=f"c{rounds}_{n}", name="run", arguments="{}", origin="completion")
                events.append(
                    ActionEvent(
                        thought=[],
                        thinking_blocks=[] if n else thinking,
                        tool_name="run",
                        tool_call_id=call.id,
                        tool_call=call,
                        llm_response_id=f"r{rounds}",
                    )
                )
            events += [
                AgentErrorEvent(error="ok", tool_name="run", tool_call_id=f"c{rounds}_{n}") for n in range(calls)
            ]
        events.append(message("assistant", "since the sensor was changed"))
    return events


def main() -> None:
    logging.disable(logging.WARNING)
    print(f"openhands-sdk {importlib.metadata.version('openhands-sdk')}")
    print(f"{'events':>8} {'thinking':>9} {'rebuild':>10} {'+ boundaries':>13} {'per event':>10}")
    for share in SHARES:
        for size in map(int, sys.argv[1:]):
            events = history(size, share)
            start = time.process_time()
            view = View.from_events(events)
            built = time.process_time() - start
            assert len(view.manipulation_indices) > 0
            both = time.process_time() - start
            print(
                f"{size:8,} {share:8}% {built * 1e3:7.1f} ms {both * 1e3:10.1f} ms {both / size * 1e6:7.2f} µs",
                flush=True,
            )
            if both > PATIENCE:
                break


if __name__ == "__main__":
    main()
