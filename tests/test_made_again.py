"""Values without a stored form that a return makes again by running their statements."""

from __future__ import annotations

from told import named_by


def test_a_value_that_holds_what_cannot_be_stored_is_made_again_by_each_return(start_kernel):
    """The scanner within `matches` is not `matches` itself: later returns need the scanner of their own state."""
    kernel = start_kernel()
    for cell in ("import re\nmatches = re.finditer('.', 'abc'); first = next(matches)[0]", "second = next(matches)[0]"):
        assert kernel.run(cell).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    for command, rest in (("resume", "['c']"), ("goto 1", "['b', 'c']"), ("goto 2", "['c']")):
        told = kernel.run(f"%ctx {command}").stdout

        assert "made again: matches" in told, told
        assert kernel.run("print([one[0] for one in matches])").stdout.strip() == rest


def test_an_iterator_that_was_made_again_over_another_object_is_named(start_kernel):
    """The statement makes the tree again, too: its iterator does not go over the restored tree."""
    kernel = start_kernel()
    cell = "from xml.etree import ElementTree\ntree = ElementTree.fromstring('<a><b/></a>')\n"
    for each in (cell + "parts = tree.iter(); one = next(parts)", "two = next(parts)"):
        assert kernel.run(each).status == "ok"
    kernel.stop()
    kernel = start_kernel()
    kernel.run("%ctx resume")

    told = kernel.run("%ctx goto 1").stdout

    assert "parts" in named_by(told, ("parts",)), told


def test_a_statement_that_awaits_is_not_run_again(start_kernel):
    """Only the kernel can await: a return says so."""
    kernel = start_kernel()
    for each in ("async def count():\n    for n in range(3): yield n", "numbers = count()\none = await anext(numbers)"):
        assert kernel.run(each).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    told = kernel.run("%ctx resume").stdout

    assert "s2 is not run again: it awaits" in told, told


def test_a_statement_that_runs_again_shows_nothing(start_kernel):
    """Neither what it prints, nor what it displays: the output is the report of the return."""
    kernel = start_kernel()
    cell = "print('printed'); display(HTML('<b>shown</b>'))\nnumbers = (n for n in range(3))"
    for each in ("from IPython.display import HTML, display", cell):
        assert kernel.run(each).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    reply = kernel.run("%ctx resume")

    assert "made again: numbers" in reply.stdout, reply.stdout
    assert "printed" not in reply.stdout
    assert reply.data == []
    [shown] = kernel.run("display(HTML('<i>now</i>'))").data
    assert shown["text/html"] == "<i>now</i>"


def test_a_generator_is_made_again_by_a_cell_that_shows_a_result(start_kernel):
    """The result of that time stays in `Out`."""
    kernel = start_kernel()
    lock = "import threading; lock = threading.Lock(); lock.acquire()"
    for cell in ("numbers = (n for n in range(9)); next(numbers), next(numbers)", "next(numbers)", lock):
        assert kernel.run(cell).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    told = kernel.run("%ctx resume").stdout

    assert "made again: numbers, lock" in told, told
    assert kernel.evaluate("(next(numbers), Out[1], Out[2], lock.locked())") == "(3, (0, 1), 2, True)"


def test_an_iterator_over_a_generator_is_made_again_as_the_plan_says(start_kernel):
    """What it shares with other variables is not reported as lost."""
    kernel = start_kernel()
    cells = ("import itertools\nrows = [1, 2, 3]; table = {'rows': rows}", "def read(rows): yield from rows")
    makes = "pairs = zip(read(rows), [table, rows, rows])", "chain = itertools.chain(read(rows), rows)"
    for cell in (*cells, *makes, "first = next(pairs)[0]"):
        assert kernel.run(cell).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    plan = kernel.run("%ctx resume --dry-run").stdout
    told = kernel.run("%ctx resume").stdout

    assert "not restored" not in plan + told, plan + told
    assert kernel.evaluate("(next(pairs)[0], list(chain), table['rows'] is rows)") == "(2, [1, 2, 3, 1, 2, 3], True)"
