"""Users' files: what is loaded, and the error messages of mistakes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edl import model as models
from edl.model.functions import FUNCTIONS, UserFunction

GOOD = """
def model(): ...
def loss(outputs, labels): ...
def optimizer(parameters): ...
"""


@pytest.fixture(autouse=True)
def _path() -> Iterator[None]:
    """A file's folder is put where modules are looked for; here it is taken away again."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("edl_model_")]:
        del sys.modules[name]


def _file(folder: Path, text: str, name: str = "net.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_good_file_gives_its_functions(tmp_path: Path) -> None:
    """Those that are there, by name; the fingerprint follows the text."""
    model = models.load(_file(tmp_path, GOOD))
    other = models.load(_file(tmp_path, GOOD + "\n# changed\n", "other.py"))

    assert model.name == "net"
    assert model.has("loss")
    assert not model.has("metrics")
    assert model.code.keys() == {"model"}
    assert model.code != other.code


def test_annotations_are_what_the_file_says(tmp_path: Path) -> None:
    """As where Python runs it: values, and texts only after the file's own import of the future."""
    text = f"{GOOD}class Sizes:\n    hidden: int = 128\n"
    for head, annotation in (("", int), ("from __future__ import annotations\n", "int")):
        model = models.load(_file(tmp_path, head + text))
        sizes = model.functions["loss"].__globals__["Sizes"]

        assert sizes.__annotations__ == {"hidden": annotation}


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """Python runs such a file, and editors of Windows write them."""
    path = _file(tmp_path, GOOD)
    plain = models.load(path).code
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert models.load(path).code == plain


def test_neighbours_can_be_imported(tmp_path: Path) -> None:
    """As where Python runs a file."""
    _file(tmp_path, "def loss(outputs, labels): ...", "beside_the_net.py")
    text = GOOD.replace("def loss(outputs, labels): ...", "from beside_the_net import loss")
    model = models.load(_file(tmp_path, text))
    del sys.modules["beside_the_net"]

    assert model.functions["loss"].__module__ == "beside_the_net"


def test_a_module_without_a_file_is_no_neighbour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of `torch.ops` name a file, without a folder, that is nowhere."""
    monkeypatch.chdir(tmp_path)
    made = "import sys, types\nmade = types.ModuleType('made')\nmade.__file__ = '_made.py'\n"
    model = models.load(_file(tmp_path, GOOD + made + "sys.modules['made'] = made\n"))
    del sys.modules["made"]

    assert model.has("loss")


def test_a_changed_neighbour_is_another_version(tmp_path: Path) -> None:
    """The folder's own place does not matter."""
    codes = []
    for name, size in (("a", 1), ("b", 1), ("c", 2)):
        home = tmp_path / name
        home.mkdir()
        _file(home, f"SIZE = {size}", "size_of_the_net.py")
        codes.append(models.load(_file(home, "import size_of_the_net\n" + GOOD)).code)
        del sys.modules["size_of_the_net"]
        sys.path.remove(str(home))

    assert codes[0] == codes[1] != codes[2]


def test_classes_of_the_file_know_their_module(tmp_path: Path) -> None:
    """So dataclasses work, and what is made can be copied."""
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\n"
    model = models.load(_file(tmp_path, f"{text}class A:\n    x: int = 1\n{GOOD}"))

    assert model.functions["model"].__module__ in sys.modules


@pytest.mark.parametrize("function", [function for function in FUNCTIONS if function.required])
def test_a_missing_function_is_named(tmp_path: Path, function: UserFunction) -> None:
    """With its signature and what it returns, before anything of the file is run."""
    name = function.name
    lines = [line for line in GOOD.split("\n") if not line.startswith(f"def {name}(")]
    path = _file(tmp_path, "raise SystemExit\n" + "\n".join(lines))
    with pytest.raises(
        models.ModelError, match=f"net.py has no function {name}\\(.*define it to return"
    ):
        models.load(path)


def test_names_that_are_only_bound_in_the_text_are_missed_too(tmp_path: Path) -> None:
    """A star may bring anything; what it brought is looked at afterwards."""
    _file(tmp_path, "loss = 1", "nothing_beside.py")
    text = GOOD.replace("def loss(outputs, labels): ...", "from nothing_beside import *\ndel loss")
    with pytest.raises(models.ModelError, match=r"has no function loss\(outputs, labels\)"):
        models.load(_file(tmp_path, text))
    del sys.modules["nothing_beside"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "metrics = {}", r"metrics in .*net.py is 'dict', not a function: define metrics\("),
        (
            GOOD.replace("(outputs, labels)", "(outputs)"),
            r"loss\(outputs\) in .*net.py cannot be called as loss\(outputs, labels\)",
        ),
        (GOOD.replace("def model()", "def model(size)"), r"cannot be called as model\(\)"),
        ("def model(:", r"net.py:1 is not valid Python: "),
        ("\0", "is not valid Python"),
    ],
)
def test_other_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    """No function, other arguments, no Python."""
    with pytest.raises(models.ModelError, match=message):
        models.load(_file(tmp_path, text))


def test_functions_of_which_nothing_is_known_are_taken(tmp_path: Path) -> None:
    """Some of those written in C tell no signature."""
    model = models.load(_file(tmp_path, GOOD + "export = type"))

    assert model.has("export")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(models.ModelError, match=r"cannot read .*no.py: No such file"):
        models.load(tmp_path / "no.py")


def test_a_file_that_raises_shows_its_own_lines(tmp_path: Path) -> None:
    """And one line that names it; nothing of it stays."""
    path = _file(tmp_path, f"def inner():\n    return 1 / 0\n{GOOD}\ninner()\n")
    with pytest.raises(models.UserCodeError) as caught:
        models.load(path)

    assert str(caught.value) == f"cannot run {path}: ZeroDivisionError: division by zero"
    assert "return 1 / 0" in caught.value.trace
    assert "edl/model" not in caught.value.trace
    assert "edl_model_net" not in sys.modules


def test_frameworks_that_are_missing_can_be_installed(tmp_path: Path) -> None:
    """The line says how; of other modules it does not know."""
    raised = "raise ModuleNotFoundError('No module', name='{}')\n"
    with pytest.raises(models.UserCodeError, match=r"pip install 'edl-sdk\[paddle\]'"):
        models.load(_file(tmp_path, raised.format("paddle") + GOOD))
    with pytest.raises(models.UserCodeError, match=r"ModuleNotFoundError: No module$"):
        models.load(_file(tmp_path, raised.format("mine") + GOOD))


def test_a_file_that_exits_is_an_error(tmp_path: Path) -> None:
    """It is not a program of its own."""
    with pytest.raises(models.UserCodeError, match=r"cannot run .*: SystemExit"):
        models.load(_file(tmp_path, GOOD + "raise SystemExit(3)"))


def test_too_little_memory_is_no_fault_of_the_code(tmp_path: Path) -> None:
    """Whatever was asked for while the file was run."""
    with pytest.raises(models.OutOfMemory, match=r"out of memory \(MemoryError\)"):
        models.load(_file(tmp_path, GOOD + "raise MemoryError"))


def test_long_messages_are_cut(tmp_path: Path) -> None:
    """And what PaddlePaddle puts before its own is left out."""
    frame = "-" * 30
    text = f"{frame}\\nC++ Traceback\\n0 x\\n{frame}\\nError Message Summary:\\n{frame}\\nthis is it (at /x/y.cc:44)"
    with pytest.raises(models.UserCodeError, match=r"cannot run .*: ValueError: this is it$"):
        models.load(_file(tmp_path, GOOD + f"raise ValueError('{text}')"))
    with pytest.raises(models.UserCodeError, match=r"a \.\.\.$"):
        models.load(_file(tmp_path, GOOD + "raise ValueError('a' * 1000)"))
