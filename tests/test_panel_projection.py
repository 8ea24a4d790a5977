"""The projection in the panel's messages: sizes in each turn; blocks, bytes, images and prices on request."""

from __future__ import annotations

import hashlib
import json
import shlex

import pytest
from test_panel import LONG, Front


@pytest.fixture
def front(kernel) -> Front:
    return Front(kernel)


def test_a_turn_has_the_sizes_of_the_projection_and_no_text_of_it(front):
    """The parts add up; the blocks, which come on request, are of the same receipt and have the same tokens."""
    front.run("from pathlib import Path\n_ = Path('notes.md').write_text('# Notes\\n' + 'A line.\\n' * 60)")
    front.run("v = view('notes.md', lod=0); g = group(v); n = note('lengths are in mm')")
    told = front.run("needle = 'a text that only the blocks have'")["projection"]
    assert sum(told["parts"].values()) == told["tokens"]
    assert all(told["parts"][name] > 0 for name in ("system", "history", "handles", "variables", "groups"))
    assert told["report"] == {"ok": True, "count": 0}
    assert "only the blocks" not in json.dumps(told)
    assert len(json.dumps(told)) < 1500
    answer = front.ask(type="projection")
    assert answer["error"] is None
    blocks = answer["projection"]["blocks"]
    assert answer["projection"]["receipt"] == told["receipt"]
    assert (len(blocks), sum(block["tokens"] for block in blocks)) == (told["blocks"], told["tokens"])
    assert any("only the blocks" in block["text"] for block in blocks)
    request = front.ask(type="request")["request"]
    assert len(json.loads(request["body"])["messages"]) == told["messages"]
    assert told["cached"] == sum(block["tokens"] for block in blocks if block["cached"])


def test_the_request_comes_byte_for_byte_and_without_the_key(front):
    """Its hash is the receipt; no header holds a key; the address is the provider's."""
    front.run("import os; os.environ['ANTHROPIC_API_KEY'] = 'sk-ant-api03-' + 'k' * 80")
    told = front.run('who = "it\'s ü"')["projection"]
    request = front.ask(type="request")["request"]
    assert f"sha256:{hashlib.sha256(request['body'].encode()).hexdigest()}" == told["receipt"]
    assert "kkkk" not in json.dumps(request)
    assert request["url"].endswith("/v1/messages")
    assert request["headers"]["anthropic-version"]
    assert not {"x-api-key", "authorization"} & {name.lower() for name in request["headers"]}
    assert shlex.split(shlex.quote(request["body"])) == [request["body"]]


def test_an_address_with_a_password_is_told_without_it(front):
    """What a user puts before the host is a credential."""
    front.run("import os; os.environ['ANTHROPIC_BASE_URL'] = 'http://me:hunter2@localhost:9/base/'")
    assert front.ask(type="request")["request"]["url"] == "http://localhost:9/base/v1/messages"


def test_each_image_comes_by_its_digest(front):
    """The block names it; one that is not in the projection is refused."""
    front.run("import matplotlib.pyplot as plt\n%matplotlib inline\n_ = plt.plot([1, 2]); plt.show()")
    blocks = front.ask(type="projection")["projection"]["blocks"]
    [digest] = [one for block in blocks for one in block["images"]]
    image = front.ask(type="image", of=digest)["image"]
    assert (image["media_type"], image["data"][:8]) == ("image/png", "iVBORw0K")
    assert "no longer" in front.ask(type="image", of="0" * 16)["error"]
    assert "no longer" in front.ask(type="image", of=None)["error"]


def test_each_change_has_its_price_before_it_is_made(front):
    """Each is supposed alone, nothing is applied, and the change that is made then has that effect."""
    front.run("%ctx config recent_tokens 20000")
    front.run("%ctx config projection_tokens 100000")
    front.run(LONG)
    front.run("from pathlib import Path\n_ = Path('notes.md').write_text('# Notes\\n' + 'A long line.\\n' * 90)")
    now = front.run("v = view('notes.md', lod=2, tokens=800)")["projection"]
    changes = ["redact=s3", "v.lod=0", "v.pinned=yes", "v.shown=yes", "pin=s3", "leave=s3", "private=v", "nonsense=1"]
    answer = front.ask(type="whatif", changes="\n".join(changes))
    assert answer["error"] is None
    prices = {one["change"]: one for one in answer["whatif"]["prices"]}
    assert list(prices) == changes
    assert prices["redact=s3"]["tokens"] < -100
    assert prices["redact=s3"]["rewritten"] > 0
    assert prices["leave=s3"]["tokens"] < prices["redact=s3"]["tokens"]
    assert prices["v.pinned=yes"]["tokens"] > 20
    assert prices["pin=s3"]["tokens"] == 0
    assert prices["pin=s3"]["after"]["told"]
    assert "what is 'nonsense'" in prices["nonsense=1"]["error"]
    assert front.ask(type="snapshot")["projection"]["receipt"] == now["receipt"]
    front.run("%ctx condense --leave s3", gesture=True)
    blocks = front.ask(type="projection")["projection"]["blocks"]
    assert "s3.1" not in {block["id"] for block in blocks}
    (entry,) = front.ask(type="snapshot")["history"]["entries"]
    front.run(f"%ctx condense --undo {entry['id']}", gesture=True)
    assert "s3.1" in {block["id"] for block in front.ask(type="projection")["projection"]["blocks"]}


def test_prices_are_not_told_while_a_cell_runs(front):
    """They run the sources of handles, which the cell may be using: the control channel has no such request."""
    front.run("x = 1")
    message = front.client.session.msg("ctxkernel_whatif_request", {"id": "q", "changes": "pin=s1"})
    front.client.control_channel.send(message)
    front.run("x = 2")
    assert front.ask(type="whatif", changes="pin=s1")["whatif"]["prices"][0]["error"] is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%ctx condense --leave", "name one statement"),
        ("%ctx condense --leave s99", "no event"),
        ("%ctx whatif leave=s99", "no event"),
        ("%ctx whatif withdraw=s1.1:1", "no such redaction"),
        ("%ctx whatif image_tokens=many", "whole number"),
    ],
)
def test_a_change_that_is_not_possible_is_refused(kernel, line, told):
    """With the next step, and nothing is recorded."""
    kernel.run("x = 1")
    ran = kernel.run(line)
    assert told in ran.error["evalue"]


def test_what_if_knows_the_tokens_of_images(kernel):
    """As `budget`, it is a setting that is supposed."""
    kernel.run("import matplotlib.pyplot as plt\n%matplotlib inline\n_ = plt.plot([1, 2]); plt.show()")
    told = kernel.run("%ctx whatif image_tokens=0").data[0]["text/plain"]
    assert "s1.1#image1" in told
    assert "nothing was applied" in told


def test_a_handle_tells_its_shares_with_the_turn_and_its_text_on_request(front):
    """However long the text is, the turn's message does not have it."""
    front.run("from pathlib import Path\n_ = Path('notes.md').write_text('# Notes\\n' + 'A long line.\\n' * 3000)")
    told = front.run("v = view('notes.md', lod=0, tokens=All); g = group(v, tokens=600)")
    view, group = told["handles"]
    assert "text" not in view
    assert group["shares"] == [{"name": "v", "tokens": group["shares"][0]["tokens"]}]
    assert 0 < group["shares"][0]["tokens"] <= 600
    answer = front.ask(type="handle", of=view["obj_id"])["handle"]
    assert "".join(text for _, text in answer["blocks"][1]["spans"]).count("A long line.") > 500
    assert answer["more"] > 0
    assert "no handle 'v99'" in front.ask(type="handle", of="v99")["error"]
