"""Possible causes of a difference: the sources of chance that reach a name or output of a cell. Pure; runs nothing.

Rule 1: this is a guess from the source text: it follows values through assignments, calls, loops and known functions.
        A source that cannot be parsed (another language's cell, half a statement) has no causes, and raises no error.
Rule 2: a generator that was seeded, in the cell or by an equal state before it, is no source of chance.
Rule 3: the result only tells where to look; it never proves that there is no difference.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from ctxkernel.core.dataclasses import dataclass, field

Causes = frozenset[str]
NONE: Causes = frozenset()

SOURCE_CHARS = 200_000
"""A longer cell is not analysed."""

ALIASES = {
    "np": "numpy",
    "pd": "pandas",
    "dt": "datetime",
    "plt": "matplotlib.pyplot",
    "tf": "tensorflow",
    "nr": "numpy.random",
    "npr": "numpy.random",
    "nn": "torch.nn",
    "rnd": "random",
    "tm": "time",
}
"""The usual meaning of names that were imported elsewhere."""

_CLOCK = re.compile(
    r"time\.(?:time|perf_counter|monotonic|process_time|thread_time|clock_gettime)(?:_ns)?|time\.(?:ctime|asctime|localtime|gmtime)"
    r"|time\.strftime|(?:.*\.)?(?:datetime|Timestamp|date|arrow|pendulum)\.(?:now|utcnow|today)|timeit\..*|(?:.*\.)?default_timer"
)
_ENTROPY = re.compile(
    r"secrets\..*|uuid\.uuid[14]|os\.urandom|os\.getrandom|(?:.*\.)?SystemRandom(?:\..*)?|tempfile\..*|random\.seed|numpy\.random\.seed"
)
_GLOBAL = {
    "random": re.compile(
        r"random\.(?:random|randint|randrange|randbytes|choices?|shuffle|sample|uniform|triangular|getrandbits|\w*variate|gauss)"
    ),
    "numpy": re.compile(r"numpy\.random\.[a-z]\w*|scipy\.stats\..*\.rvs|(?:.*\.)?rvs|scipy\.sparse\.random\w*"),
    "torch": re.compile(
        r"torch\.(?:rand\w*|normal|bernoulli|multinomial|poisson)|torch\.nn\.[A-Z]\w*|torch\.nn\.init\.\w+"
        r"|torch\.utils\.data\.(?:DataLoader|random_split)"
    ),
    "tensorflow": re.compile(r"tensorflow\.random\..*|(?:tensorflow\.)?keras\..*"),
}
_NEW_GENERATORS = re.compile(
    r"numpy\.random\.(?:default_rng|RandomState|SeedSequence|PCG64\w*|Philox|MT19937|SFC64)|random\.Random|torch\.Generator"
)
_SEEDS = {
    "random.seed": "random",
    "random.setstate": "random",
    "numpy.random.seed": "numpy",
    "numpy.random.set_state": "numpy",
    "torch.manual_seed": "torch",
    "torch.random.manual_seed": "torch",
    "torch.set_rng_state": "torch",
    "tensorflow.random.set_seed": "tensorflow",
}
_QUIET = re.compile(
    r"numpy\.random\.(?:get_state|set_state|seed|Generator|BitGenerator|bit_generator)|torch\.nn\.(?:functional|Module|Parameter).*"
)
# Functions and classes of scikit-learn and similar libraries that by default draw from NumPy's global generator.
_ESTIMATORS = re.compile(
    r"train_test_split|(?:Random|Extra)(?:Forest|Trees?)\w*|IsolationForest|RandomTreesEmbedding|Bagging\w+|AdaBoost\w+|GradientBoosting\w+"
    r"|DecisionTree\w+|ExtraTree\w+|(?:MiniBatch)?KMeans|BisectingKMeans|SpectralClustering|MLP\w+|SGD\w+|Perceptron|PassiveAggressive\w+"
    r"|TSNE|UMAP|MDS|GaussianMixture|BayesianGaussianMixture|FastICA|NMF|DictionaryLearning|LatentDirichletAllocation|TruncatedSVD"
    r"|ShuffleSplit|StratifiedShuffleSplit|GroupShuffleSplit|RandomizedSearchCV|RepeatedKFold|RepeatedStratifiedKFold|BernoulliRBM"
    r"|GaussianRandomProjection|SparseRandomProjection|Nystroem|RBFSampler|permutation_importance|make_[a-z]\w+|resample|sample"
)
_FILES = re.compile(
    r"(?:.*\.)?(?:open|read_\w+|load|loadtxt|genfromtxt|fromfile|memmap|imread|loadmat|read_text|read_bytes|ExcelFile|HDFStore|connect|File"
    r"|load_\w+|iterdir|glob|rglob|listdir|scandir|walk)"
)
_MEMORY = frozenset(("StringIO", "BytesIO"))
"""Files in memory …"""
_IN_MEMORY = ":memory:"
"""… and the name of such a database."""
_NETWORK = re.compile(
    r"(?:requests|httpx|urllib(?!\.(?:parse|error)\b)|urllib3|aiohttp)\..*|(?:.*\.)?(?:urlopen|urlretrieve|fetch_\w+)"
)
_ENVIRONMENT = re.compile(
    r"os\.(?:environ|getenv|getpid|getppid|cpu_count|getlogin|uname|getcwd|stat|times|getloadavg)\b.*|platform\..*|sys\.(?:version\w*|path|argv|executable)"
    r"|socket\.gethostname|getpass\.\w+|psutil\..*|resource\..*|(?:.*\.)?__version__|gc\..*|tracemalloc\..*"
)
_ADDRESSES = re.compile(r"id|object\.__(?:repr|hash)__")
_SETS = re.compile(r"set|frozenset|hash|(?:.*\.)?(?:union|intersection|difference|symmetric_difference)")
_THREADS = re.compile(r"(?:.*\.)?(?:as_completed|imap_unordered|gather|ThreadPoolExecutor|ProcessPoolExecutor|Thread)")
_UNORDERED = frozenset(
    ("sorted", "len", "sum", "min", "max", "any", "all", "set", "frozenset", "bool", "isinstance", "Counter")
)
"""Calls whose result does not depend on the order of a set."""
_CLOCK_MAGIC = re.compile(r"(?:^|=)\s*%%?(?:time|timeit|prun|mprun|memit)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Flow:
    """The causes that reach names and outputs: `clock`, `file`, `set order`, …; for generators, `seed:` and a name."""

    names: Mapping[str, Causes] = field(default_factory=dict[str, Causes])
    printed: Causes = NONE
    """The causes of text that calls print or display."""
    result: Causes = NONE
    """The causes of the value of the last expression."""
    anything: Causes = NONE
    """All causes in the cell and in the functions that it calls."""
    reads_clock: bool = False
    """Whether its own code reads the clock; a magic that measures time does not count."""


def flow(
    source: str,
    *,
    functions: Mapping[str, str] | None = None,
    meaning: Mapping[str, str] | None = None,
    upstream: Collection[str] = (),
    sets: Collection[str] = (),
) -> Flow:
    """Return the sources of chance that reach the names and outputs of `source`.

    `functions` are the sources of functions and classes of the namespace that it may call, `meaning` the dotted names
    that names of the namespace stand for (`np` → `numpy`), `upstream` names whose values differed before it ran, `sets`
    names of sets.
    """
    timed: Causes = frozenset(("clock",)) if _CLOCK_MAGIC.search(source[:SOURCE_CHARS]) else NONE
    tree = parse(source)
    if tree is None:
        return Flow(printed=timed, anything=timed)
    before: dict[str, Causes] = {name: frozenset(("upstream",)) for name in upstream}
    for name in sets:
        before[name] = before.get(name, NONE) | {"set order"}
    walk = _Walk(functions or {}, {**ALIASES, **(meaning or {})}, before)
    with suppress(RecursionError):  # thousands of nested parentheses: keep the causes found so far
        walk.block(tree.body)
    result = NONE
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        result = walk.last
    everything = walk.anything | timed
    return Flow(walk.env, walk.printed | timed, result | walk.printed | timed, everything, "clock" in walk.anything)


def names_used(source: str) -> frozenset[str]:
    """Return the names in a source; none if it cannot be parsed."""
    tree = parse(source)
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) if tree else frozenset()


_MAGIC = re.compile(
    r"^(?P<indent>\s*)(?:(?P<target>[\w ,]+?)\s*=\s*)?(?P<sign>%{1,2}|!{1,2})(?P<rest>[^\n]*)$", re.MULTILINE
)
_CODE_MAGICS = ("time", "timeit", "capture", "prun", "memit", "mprun")


def _plain(found: re.Match[str]) -> str:
    """Return a magic or shell line as Python, with the name that it assigns and the code that it holds."""
    word, _, code = found["rest"].partition(" ")
    if found["sign"] in ("%", "%%") and word in _CODE_MAGICS:
        code = re.sub(r"^(?:\s*-[a-zA-Z]\s?\w*)+\s*", "", code).strip()
        line = code if found["sign"] == "%" and code else "pass"
    else:
        line = "pass"
    if found["target"] and found["target"].replace(",", "").replace(" ", "").isidentifier():
        line = f"{found['target']} = ({line})" if line != "pass" else f"{found['target']} = None"
    return found["indent"] + line


def parse(source: str, *, strict: bool = False) -> ast.Module | None:
    """Return the syntax tree of a cell, with magics replaced by their assignments and code; None if it has none.

    `strict`: a cell with a magic or a shell command has none.
    """
    if len(source) > SOURCE_CHARS:
        return None
    texts = (source,) if strict else (source, re.sub(r"(?m)\?{1,2}\s*$", "", _MAGIC.sub(_plain, source)))
    for text in texts:
        try:
            return ast.parse(textwrap.dedent(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


_PRIVATE = re.compile(r"^(numpy\.random|random|time|datetime|secrets|uuid)\.(?:_\w+|mtrand|bit_generator)\.")


def _public(dotted: str) -> str:
    """Return the public name of an object of an implementation module: `posix.urandom` is `os.urandom`."""
    head, _, rest = dotted.partition(".")
    if rest and head in ("posix", "nt"):
        return f"os.{rest}"
    if rest and head == "builtins":
        return rest
    return _PRIVATE.sub(r"\1.", dotted)


class _Walk:
    """One pass over a cell, in the order in which it runs."""

    def __init__(self, functions: Mapping[str, str], meaning: Mapping[str, str], before: Mapping[str, Causes]) -> None:
        self.env = dict(before)
        self.printed: Causes = NONE
        self.anything: Causes = NONE
        self.last: Causes = NONE
        self._functions = functions
        self._meaning = dict(meaning)
        self._known: dict[str, Causes] = {}
        self._seeded: set[str] = set()
        self._under: list[Causes] = []
        """The causes of the conditions around the present statement."""

    # -- statements ---------------------------------------------------------------------------

    def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    self._meaning[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            case ast.ImportFrom():
                for alias in node.names:
                    self._meaning[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._known[node.name] = self._inside(node)
                self.env[node.name] = NONE
            case ast.Assign():
                value = self._value(node.value)
                for target in node.targets:
                    self._assign(target, value)
                    if isinstance(target, ast.Name) and self._is_memory(node.value):
                        self._meaning[target.id] = self._dotted(node.value)
            case ast.AnnAssign():
                if node.value is not None:
                    self._assign(node.target, self._value(node.value))
            case ast.AugAssign():
                self._assign(node.target, self._value(node.value) | self._value(node.target))
            case ast.For() | ast.AsyncFor():
                over = self._value(node.iter)
                self._assign(node.target, over)
                self._twice(node.body, over)
                self.block(node.orelse)
            case ast.While():
                self._twice(node.body, self._value(node.test))
                self.block(node.orelse)
            case ast.If():
                self._under.append(self._value(node.test))
                self.block(node.body)
                self.block(node.orelse)
                self._under.pop()
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self._value(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, value)
                self.block(node.body)
            case ast.Try() | ast.TryStar():
                self.block(node.body)
                for handler in node.handlers:
                    self.block(handler.body)
                self.block(node.orelse)
                self.block(node.finalbody)
            case ast.Match():
                self._under.append(self._value(node.subject))
                for case in node.cases:
                    self.block(case.body)
                self._under.pop()
            case ast.Expr():
                self.last = self._value(node.value)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self._value(child)

    def _twice(self, body: list[ast.stmt], under: Causes) -> None:
        # Twice: a round may read values of the previous one.
        self._under.append(under)
        self.block(body)
        self.block(body)
        self._under.pop()

    def _assign(self, target: ast.expr, causes: Causes) -> None:
        for under in self._under:
            causes |= under
        match target:
            case ast.Name():
                held = self.env.get(target.id, NONE) if self._under else NONE
                self.env[target.id] = held | causes
            case ast.Tuple() | ast.List():
                for one in target.elts:
                    self._assign(one, causes)
            case ast.Starred():
                self._assign(target.value, causes)
            case ast.Attribute() | ast.Subscript():
                self._touch(target.value, causes)
            case _:
                pass

    def _touch(self, node: ast.expr, causes: Causes) -> None:
        """Add causes to the name that a changed object is reached from."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Name) and causes:
            self.env[node.id] = self.env.get(node.id, NONE) | causes

    # -- expressions --------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Causes:
        if node is None:
            return NONE
        match node:
            case ast.Name():
                return self.env.get(node.id, NONE)
            case ast.Constant():
                return NONE
            case ast.Call():
                return self._call(node)
            case ast.Attribute():
                return self._value(node.value) | self._own(self._dotted(node), None)
            case ast.Set() | ast.SetComp():
                return self._children(node) | self._note("set order")
            case ast.NamedExpr():
                value = self._value(node.value)
                self._assign(node.target, value)
                return value
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
                for clause in node.generators:
                    self._assign(clause.target, self._value(clause.iter))
                return self._children(node)
            case ast.Compare():
                order = any(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
                causes = self._children(node)
                return causes - {"set order"} if order else causes
            case ast.Lambda():
                return self._inside(node)
            case _:
                return self._children(node)

    def _children(self, node: ast.AST) -> Causes:
        causes = NONE
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                causes |= self._value(child)
            elif isinstance(child, ast.comprehension):
                causes |= self._value(child.iter)
                for test in child.ifs:
                    causes |= self._value(test)
            elif isinstance(child, ast.keyword | ast.FormattedValue):
                causes |= self._value(child.value)
        return causes

    def _call(self, node: ast.Call) -> Causes:
        dotted = self._dotted(node.func)
        given = NONE
        for argument in node.args:
            given |= self._value(argument)
        for keyword in node.keywords:
            given |= self._value(keyword.value)
        own = self._own(dotted, node)
        held = self._value(node.func.value) if isinstance(node.func, ast.Attribute) else self._value(node.func)
        short = dotted.rpartition(".")[2] if dotted else ""
        if isinstance(node.func, ast.Attribute):
            self._touch(node.func.value, given | held)
        own |= held
        if short in ("print", "display", "pprint", "show"):
            self.printed |= given | own
            for under in self._under:
                self.printed |= under
        if own:
            for argument in node.args:
                if isinstance(argument, ast.Name):  # `shuffle(x)` may change x in place
                    self._touch(argument, own)
        causes = own | given
        return causes - {"set order"} if short in _UNORDERED and short not in ("set", "frozenset") else causes

    def _dotted(self, node: ast.expr) -> str:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self._meaning.get(node.id, node.id))
        elif isinstance(node, ast.Call):
            parts.append(self._dotted(node.func))
        else:
            parts.append("")
        return _public(".".join(reversed(parts)))

    def _note(self, cause: str) -> Causes:
        self.anything |= {cause}
        return frozenset((cause,))

    def _own(self, dotted: str, call: ast.Call | None) -> Causes:
        """Return the causes of using `dotted` itself."""
        if not dotted:
            return NONE
        if call is None:
            return self._note("environment") if _ENVIRONMENT.fullmatch(dotted) else NONE
        short = dotted.rpartition(".")[2]
        given = bool(call.args or call.keywords)
        if dotted in _SEEDS and given:
            self._seeded.add(_SEEDS[dotted])
            return NONE
        if _CLOCK.fullmatch(dotted):
            whole = short in ("ctime", "asctime", "localtime", "gmtime")
            if (whole and given) or (short == "strftime" and len(call.args) > 1):
                return NONE
            return self._note("clock")
        if _NEW_GENERATORS.fullmatch(dotted):
            return NONE if given else self._note("seed:entropy")
        if _ENTROPY.fullmatch(dotted):
            return self._note("seed:entropy")
        for generator, pattern in _GLOBAL.items():
            if pattern.fullmatch(dotted) and not _QUIET.fullmatch(dotted):
                return NONE if generator in self._seeded else self._note(f"seed:{generator}")
        if _ESTIMATORS.fullmatch(short) and "numpy" not in self._seeded:
            state = next((one.value for one in call.keywords if one.arg == "random_state"), None)
            if state is None or (isinstance(state, ast.Constant) and state.value is None):
                return self._note("seed:numpy")
        if short == "input" and dotted == "input":
            return self._note("input")
        for cause, pattern in _TABLE:
            if pattern.fullmatch(dotted):
                in_memory = cause == "file" and any(map(self._is_memory, call.args[:1]))
                return NONE if in_memory else self._note(cause)
        return self._function(dotted)

    def _is_memory(self, node: ast.expr) -> bool:
        """Return whether an expression is a file or the name of a database in memory."""
        if isinstance(node, ast.Constant):
            return node.value == _IN_MEMORY
        return isinstance(node, ast.Call | ast.Name) and self._dotted(node).rpartition(".")[2] in _MEMORY

    def _function(self, name: str) -> Causes:
        """Return the causes in a function of the namespace, and in those that it calls."""
        known = self._known.get(name)
        if known is not None:
            return known
        source = self._functions.get(name)
        if source is None:
            return NONE
        self._known[name] = NONE  # the function may call itself
        tree = parse(source)
        self._known[name] = found = self._inside(tree) if tree is not None else NONE
        return found

    def _inside(self, node: ast.AST) -> Causes:
        """Return all causes within the code of a function or class, in any order of execution."""
        causes = NONE
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call):
                causes |= self._own(self._dotted(inner.func), inner)
            elif isinstance(inner, ast.Attribute):
                causes |= self._own(self._dotted(inner), None)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                causes |= self.env.get(inner.id, NONE)
            elif isinstance(inner, ast.Set | ast.SetComp):
                causes |= self._note("set order")
        return causes


_TABLE = (
    ("network", _NETWORK),
    ("file", _FILES),
    ("set order", _SETS),
    ("address", _ADDRESSES),
    ("threads", _THREADS),
    ("environment", _ENVIRONMENT),
)
