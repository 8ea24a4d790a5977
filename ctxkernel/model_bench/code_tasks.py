"""Tasks about code: find a fault, write a function, recover from an error, respect units and dates."""

from __future__ import annotations

from ctxkernel.model_bench.task import Solution, Task, code

CODE_TASKS = (
    Task(
        "off-by-one",
        "find an error at the end of a range",
        (
            code("""
                def moving_average(values, n):
                    return [sum(values[i : i + n]) / n for i in range(len(values) - n)]

                moving_average([1, 2, 3, 4], 2)
            """),
        ),
        "moving_average leaves out the last window: of [1, 2, 3, 4] with n=2 I expect three averages. Define the "
        "function again without this error.",
        code("""
            assert moving_average([1, 2, 3, 4], 2) == [1.5, 2.5, 3.5]
            assert moving_average([1, 2, 3], 3) == [2.0], "one window as long as the values"
            assert moving_average([5, 7], 1) == [5.0, 7.0]
            assert moving_average([1, 2], 3) == [], "no window longer than the values"
        """),
        Solution(
            (
                code("""
                    def moving_average(values, n):
                        return [sum(values[i : i + n]) / n for i in range(len(values) - n + 1)]
                """),
            )
        ),
        Solution(
            (
                code("""
                    def moving_average(values, n):
                        return [sum(values[i : i + n]) / n for i in range(len(values))]
                """),
            )
        ),
    ),
    Task(
        "shared-default",
        "know that a default value is made once",
        (
            code("""
                def add_tag(tag, tags=[]):
                    tags.append(tag)
                    return tags

                add_tag("red"), add_tag("blue")
            """),
        ),
        "Why does add_tag('blue') return 'red' too? Define add_tag again so that each call without `tags` begins "
        "with an empty list. A list that is given shall still be extended in place.",
        code("""
            assert add_tag("a") == ["a"] and add_tag("b") == ["b"], "calls share a list"
            mine = ["x"]
            assert add_tag("y", mine) is mine and mine == ["x", "y"], "a given list is not extended in place"
            empty = []
            assert add_tag("z", empty) is empty and empty == ["z"], "an empty list that is given is not extended"
        """),
        Solution(
            (
                code("""
                    def add_tag(tag, tags=None):
                        if tags is None:
                            tags = []
                        tags.append(tag)
                        return tags
                """),
            ),
            "The default list was made once, when the function was defined, and shared by all calls.",
        ),
        Solution(("def add_tag(tag, tags=()):\n    return [*tags, tag]",)),
    ),
    Task(
        "binary-search",
        "repair an algorithm at its edges",
        (
            code("""
                def find(values, wanted):
                    \"\"\"Return the index of `wanted` in the sorted `values`, or -1.\"\"\"
                    low, high = 0, len(values) - 1
                    while low < high:
                        middle = (low + high) // 2
                        if values[middle] < wanted:
                            low = middle + 1
                        else:
                            high = middle - 1
                    return low if values[low] == wanted else -1
            """),
        ),
        "`find` is wrong for some values, for example find([1, 3, 5], 3) and find([], 1). Define it again so that "
        "it does what its docstring says. Keep it a binary search.",
        code("""
            assert find([], 1) == -1
            for n in range(1, 12):
                values = list(range(0, 2 * n, 2))
                assert [find(values, one) for one in values] == list(range(n)), f"values of {values}"
                assert {find(values, one) for one in range(-1, 2 * n, 2)} == {-1}, f"no values of {values}"

            class Counted(list):
                reads = 0

                def __getitem__(self, at):
                    Counted.reads += 1
                    return super().__getitem__(at)

            find(Counted(range(4096)), 1234)
            assert 1 <= Counted.reads < 60, f"{Counted.reads} reads: this is no binary search"
        """),
        Solution(
            (
                code("""
                    def find(values, wanted):
                        \"\"\"Return the index of `wanted` in the sorted `values`, or -1.\"\"\"
                        low, high = 0, len(values) - 1
                        while low <= high:
                            middle = (low + high) // 2
                            if values[middle] == wanted:
                                return middle
                            if values[middle] < wanted:
                                low = middle + 1
                            else:
                                high = middle - 1
                        return -1
                """),
            )
        ),
        Solution(("def find(values, wanted):\n    return values.index(wanted) if wanted in values else -1",)),
    ),
    Task(
        "roman",
        "write a function from a description",
        (),
        "Write a function roman(n) that returns the Roman numeral of a whole number from 1 to 3999 as a text, for "
        "example 'MCMXCIV' for 1994. For any other number it raises ValueError.",
        code("""
            known = {1: "I", 4: "IV", 9: "IX", 14: "XIV", 40: "XL", 90: "XC", 400: "CD", 1994: "MCMXCIV"}
            known |= {2026: "MMXXVI", 3999: "MMMCMXCIX"}
            assert {n: roman(n) for n in known} == known
            for n in (0, -1, 4000):
                try:
                    roman(n)
                except ValueError:
                    continue
                raise AssertionError(f"roman({n}) raises no ValueError")
        """),
        Solution(
            (
                code("""
                    def roman(n):
                        if not 1 <= n <= 3999:
                            raise ValueError(n)
                        signs = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC")]
                        signs += [(50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
                        made = ""
                        for value, sign in signs:
                            made += sign * (n // value)
                            n %= value
                        return made
                """),
            )
        ),
        Solution(
            (
                code("""
                    def roman(n):
                        made = ""
                        for value, sign in zip([1000, 500, 100, 50, 10, 5, 1], "MDCLXVI"):
                            made += sign * (n // value)
                            n %= value
                        return made
                """),
            )
        ),
    ),
    Task(
        "regex",
        "write a precise regular expression",
        (
            code("""
                text = '''Order AB-1234 and XY-0007, not ab-1234, A-1234, ABC-1234 or AB-12345.
                Spare parts: (QQ-9999) "ZZ-0000", KL-4711; see KL-4711 again.'''
            """),
        ),
        "Set `codes` to the list of the article numbers in `text`, in order, each once. An article number is two "
        "capital letters, a hyphen and four digits, and no letter or digit stands right before or after it.",
        'assert list(codes) == ["AB-1234", "XY-0007", "QQ-9999", "ZZ-0000", "KL-4711"], codes',
        Solution(
            (r"import re" + "\n" + r'codes = list(dict.fromkeys(re.findall(r"\b[A-Z]{2}-\d{4}\b", text)))' + "\ncodes",)
        ),
        Solution(('import re\ncodes = list(dict.fromkeys(re.findall(r"[A-Z]{2}-\\d{4}", text)))',)),
    ),
    Task(
        "slow-loop",
        "make code faster and keep its result",
        (
            code("""
                def shared_ids(left, right):
                    found = []
                    for one in left:
                        if one in right and one not in found:
                            found.append(one)
                    return found

                shared_ids([3, 1, 2, 3], [2, 3])
            """),
        ),
        "shared_ids is too slow for lists of 50,000 numbers. Define it again so that it needs less than a second "
        "for them and returns the same list in the same order.",
        code("""
            assert shared_ids([3, 1, 2, 3], [2, 3]) == [3, 2], "another result or order"
            assert shared_ids([], [1]) == []

            class Id(int):
                compared = 0

                def __eq__(self, other):
                    Id.compared += 1
                    return int(self) == int(other)

                def __hash__(self):
                    return int(self)

            left, right = [Id(n) for n in range(600)], [Id(n) for n in range(0, 1200, 2)]
            assert shared_ids(left, right) == list(range(0, 600, 2))
            assert Id.compared < 20 * 600, f"{Id.compared:,} comparisons for 600 numbers: it is still quadratic"
        """),
        Solution(
            (
                code("""
                    def shared_ids(left, right):
                        known = set(right)
                        return list(dict.fromkeys(one for one in left if one in known))
                """),
            )
        ),
        Solution(("def shared_ids(left, right):\n    return list(set(left) & set(right))",)),
    ),
    Task(
        "wrong-type",
        "read a traceback and fix its cause",
        (
            'rows = [("a", "12"), ("b", "7.5"), ("c", ""), ("d", "30")]',
            "total = sum(value for _, value in rows)",
        ),
        "The last cell fails. Set `total` to the sum of the numbers in `rows`; an empty text counts as nothing. "
        "Do not change `rows`.",
        code("""
            assert abs(total - 49.5) < 1e-9, total
            assert rows == [("a", "12"), ("b", "7.5"), ("c", ""), ("d", "30")], "rows changed"
        """),
        Solution(("total = sum(float(value) for _, value in rows if value)\ntotal",), "The values were texts."),
        Solution(("total = sum(int(float(value)) for _, value in rows if value)",)),
    ),
    Task(
        "encoding",
        "recover from an error of the first try",
        (
            code("""
                from pathlib import Path

                Path("stations.csv").write_bytes("name;height\\nMünchen;519\\nKöln;37\\nZürich;408\\n".encode("latin-1"))
            """),
        ),
        "Read stations.csv and set `heights` to a dict from the names to the heights as whole numbers. The names "
        "must be spelled correctly.",
        'assert heights == {"München": 519, "Köln": 37, "Zürich": 408}, heights',
        Solution(
            (
                "text = open('stations.csv', encoding='utf-8').read()",
                code("""
                    lines = open("stations.csv", encoding="latin-1").read().splitlines()[1:]
                    heights = {name: int(height) for name, height in (line.split(";") for line in lines)}
                    heights
                """),
            ),
            "The file is not UTF-8 but Latin-1.",
        ),
        Solution(
            (
                code("""
                    lines = open("stations.csv", encoding="utf-8", errors="ignore").read().splitlines()[1:]
                    heights = {name: int(height) for name, height in (line.split(";") for line in lines)}
                """),
            )
        ),
    ),
    Task(
        "broken-lines",
        "recover from broken data and count it",
        (
            code("""
                from pathlib import Path

                lines = ['{"id": 1, "x": 2.5}', '{"id": 2, "x": ', '', '{"id": 3, "x": 1.5}', 'NaN', '{"id": 4}']
                _ = Path("records.jsonl").write_text("\\n".join(lines) + "\\n")
            """),
        ),
        "records.jsonl should have one JSON object on each line. Set `records` to the list of those objects and "
        "`skipped` to the number of the other lines that are not empty.",
        code("""
            assert [one["id"] if isinstance(one, dict) else one for one in records] == [1, 3, 4], records
            assert skipped == 2, f"skipped is {skipped}: the broken line, and NaN, which is no object"
        """),
        Solution(
            (
                code("""
                    import json

                    records, skipped = [], 0
                    for line in open("records.jsonl"):
                        if not line.strip():
                            continue
                        try:
                            value = json.loads(line)
                        except ValueError:
                            value = None
                        if isinstance(value, dict):
                            records.append(value)
                        else:
                            skipped += 1
                    records, skipped
                """),
            )
        ),
        Solution(
            (
                code("""
                    import json

                    records, skipped = [], 0
                    for line in open("records.jsonl"):
                        try:
                            records.append(json.loads(line))
                        except ValueError:
                            skipped += 1
                """),
            )
        ),
    ),
    Task(
        "units",
        "convert mixed units before comparing",
        ('runs = [("ada", 36.0, "km/h"), ("bo", 11.0, "m/s"), ("cy", 22.0, "mph"), ("di", 640.0, "m/min")]',),
        "Set `fastest` to the name of the fastest run and `speed` to its speed in m/s. A mile has 1609.344 m.",
        code("""
            assert fastest == "bo", fastest
            assert abs(speed - 11.0) < 0.01, speed
        """),
        Solution(
            (
                code("""
                    factor = {"km/h": 1 / 3.6, "m/s": 1, "mph": 1609.344 / 3600, "m/min": 1 / 60}
                    speed, fastest = max((value * factor[unit], name) for name, value, unit in runs)
                    fastest, speed
                """),
            )
        ),
        Solution(("fastest, speed, _ = max(runs, key=lambda run: run[1])",)),
    ),
    Task(
        "inclusive-days",
        "count days across a leap year",
        ('stays = [("2024-02-27", "2024-03-01"), ("2023-02-27", "2023-03-01"), ("2025-12-31", "2026-01-01")]',),
        "Each entry of `stays` is the first and the last day of a stay in the lab; both count. Set `days` to the "
        "list of their lengths in days.",
        "assert list(days) == [4, 3, 2], days",
        Solution(
            (
                code("""
                    from datetime import date

                    days = [(date.fromisoformat(b) - date.fromisoformat(a)).days + 1 for a, b in stays]
                    days
                """),
            )
        ),
        Solution(
            (
                code("""
                    from datetime import date

                    days = [(date.fromisoformat(b) - date.fromisoformat(a)).days for a, b in stays]
                """),
            )
        ),
    ),
    Task(
        "time-zones",
        "order times with different offsets",
        (
            code("""
                events = {
                    "valve": "2026-03-01T09:15:00+01:00",
                    "alarm": "2026-03-01T03:20:00-05:00",
                    "reset": "2026-03-01T08:10:00+00:00",
                }
            """),
        ),
        "Set `order` to the names of the events from the earliest to the latest, and `minutes` to the minutes "
        "from the first to the last.",
        code("""
            assert list(order) == ["reset", "valve", "alarm"], order
            assert abs(minutes - 10) < 1e-9, minutes
        """),
        Solution(
            (
                code("""
                    from datetime import datetime

                    times = {name: datetime.fromisoformat(text) for name, text in events.items()}
                    order = sorted(times, key=times.get)
                    minutes = (times[order[-1]] - times[order[0]]).total_seconds() / 60
                    order, minutes
                """),
            )
        ),
        Solution(("order = sorted(events, key=events.get)\nminutes = 355",)),
    ),
)
