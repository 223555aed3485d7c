"""The documentation names only what exists, and every formula names where it is derived."""

import ast
import importlib
import inspect
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rescind.core
from rescind.core.calibration import Budget, attack_power

ROOT = Path(__file__).parents[1]
THEORY = (ROOT / "docs" / "theory.md").read_text()
PAPER_MAP = (ROOT / "docs" / "paper-map.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
SECTIONS = set(re.findall(r"^## (\d+)\. ", THEORY, flags=re.MULTILINE))
# The first column of the paper map's tables: what the paper numbers, as it is printed.
KINDS = r"(?:Eq\.|Definition|Theorem|Algorithm|Section|Appendix|Figure|Table)"
PRINTED = re.findall(rf"^\| ({KINDS} \S+) \|", PAPER_MAP, flags=re.MULTILINE)
SOURCES = [
    path
    for folder in ("src", "benchmarks", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if re.search(r"Paper:|Theory\b", path.read_text("utf-8"))
]
MODULES = [name for _, name, _ in pkgutil.iter_modules(rescind.core.__path__) if not name.startswith("_")]


def resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_names(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


test_names.__test__ = False  # type: ignore[attr-defined]


def dotted_names(page: str) -> list[str]:
    return sorted(set(re.findall(r"`((?:rescind|benchmarks)[\w.]+)`", page)))


@pytest.mark.parametrize("dotted", dotted_names(PAPER_MAP))
def test_the_paper_map_names_code_that_exists(dotted: str) -> None:
    assert resolve(dotted) is not None


@pytest.mark.parametrize("dotted", dotted_names(GLOSSARY))
def test_the_glossary_names_code_that_exists(dotted: str) -> None:
    assert resolve(dotted) is not None


def test_the_glossary_explains_each_word_once_and_names_its_code() -> None:
    rows = re.findall(r"^\| (?!word \|)([^|]+) \| [^|]+ \| ([^|]+) \|$", GLOSSARY, flags=re.MULTILINE)
    words = [word for row, _ in rows for word in row.split(", ")]
    assert len(rows) > 30
    assert len(words) == len(set(words))
    assert [word for word, code in rows if not dotted_names(code)] == []


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(tests/[\w/.:]+)`", PAPER_MAP))))
def test_the_paper_map_names_tests_that_exist(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert (ROOT / path).is_file()
    assert not name or name in test_names(path)


def paper_numbers(text: str) -> list[str]:
    """Return what a text cites by number: "Theorem 1, Eq. (9) and (15)" is three."""
    several = r"Eq\. \([^)]*\)(?:(?:,| and) \([^)]*\))+"
    each = re.sub(several, lambda run: re.sub(r"(?<!Eq\. )\(", "Eq. (", run[0]), " ".join(text.split()))
    return re.findall(rf"{KINDS} (?:\([^)]*\)|[\w.]*\w)", each)


def theory_sections(text: str) -> list[str]:
    return re.findall(r"\d+", " ".join(re.findall(r"Theory\s+sections?\s+(\d+(?:(?:,| and)\s+\d+)*)", text)))


def test_what_a_text_cites_is_found() -> None:
    equations = paper_numbers("Eq. (9), (12) and\n(15); Eq. psi_star, Eq. (delta).")
    assert equations == ["Eq. (9)", "Eq. (12)", "Eq. (15)", "Eq. psi_star", "Eq. (delta)"]
    assert paper_numbers("Algorithm 2 (IFU); Section 5.1.") == ["Algorithm 2", "Section 5.1"]
    assert theory_sections("Theory section 3. Theory sections 4,\n5 and 12.") == ["3", "4", "5", "12"]


def test_the_paper_map_has_each_number_once_and_every_equation_in_order() -> None:
    assert len(PRINTED) == len(set(PRINTED))
    equations = [name for name in PRINTED if name.startswith("Eq.")]
    assert equations == [f"Eq. ({number})" for number in range(1, 41)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_docstring_cites_numbers_that_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    for cited in re.findall(r'Paper: (.+?)(?:\bTheory\b|\n\s*\n|""")', text, flags=re.DOTALL):
        numbers = paper_numbers(cited)
        assert numbers, f"this names nothing that the paper numbers: {cited}"
        assert set(numbers) <= set(PRINTED), f"not in docs/paper-map.md: {set(numbers) - set(PRINTED)}"
    assert set(theory_sections(text)) <= SECTIONS
    assert not re.search(r"Theory: \d", text), "looks like an equation of the paper: write Theory section"


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: path.stem)
def test_a_page_cites_equations_that_exist(path: Path) -> None:
    equations = {name for name in paper_numbers(path.read_text("utf-8")) if name.startswith("Eq.")}
    assert equations <= set(PRINTED)


def test_the_paper_map_quotes_the_wrong_versions_by_name() -> None:
    from benchmarks.soundness import Wrong

    for quoted in re.findall(r'"([^"]+)"', PAPER_MAP):
        assert any(wrong.value.startswith(quoted) for wrong in Wrong), quoted


@pytest.mark.parametrize("module", MODULES)
def test_every_public_formula_names_its_source(module: str) -> None:
    loaded = importlib.import_module(f"rescind.core.{module}")
    public = [
        item
        for name, item in vars(loaded).items()
        if not name.startswith("_")
        and (inspect.isfunction(item) or inspect.isclass(item))
        and item.__module__ == loaded.__name__
    ]
    for item in public:
        text = inspect.getdoc(item) or ""
        cited = theory_sections(text)
        assert cited, f"{module}.{item.__name__} names no section of docs/theory.md"
        assert set(cited) <= SECTIONS


@pytest.mark.parametrize(
    "path",
    # The baseline asks for what the paper does.
    [
        ROOT / "README.md",
        ROOT / "docs" / "start.md",
        *sorted({*(ROOT / "examples").glob("*/README.md")} - {ROOT / "examples" / "sifu" / "README.md"}),
    ],
    ids=lambda path: path.parent.name,
)
def test_an_example_asks_for_a_guarantee_that_one_would_want(path: Path) -> None:
    asked = re.findall(r"^(?:\$ )?rescind request add (.*)$", path.read_text("utf-8"), re.MULTILINE)
    assert asked
    for words in asked:
        epsilon, delta = (
            float(found[1]) if (found := re.search(rf"--{name} (\S+)", words)) else usual
            for name, usual in (("epsilon", 1.0), ("delta", 1e-5))
        )
        assert attack_power(Budget(epsilon, delta).mu, 0.01) < 0.06


CONSOLE = [
    pytest.param(path, command, shown, id=f"{path.stem}: {command[:40]}")
    for path in sorted((ROOT / "docs").glob("*.md"))
    # The gate does what it says, in an empty folder.
    if path.name != "start.md"
    for block in re.findall(r"^```console\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for command, shown in re.findall(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", block, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("path", "command", "shown"), CONSOLE)
def test_a_console_shows_what_its_commands_print(path: Path, command: str, shown: str) -> None:
    words = shlex.split(command)
    beside = Path(sys.executable).parent / words[0]
    done = subprocess.run([beside, *words[1:]], cwd=path.parent, check=True, capture_output=True, text=True)
    # A line of three dots stands for lines that are left out.
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    assert re.fullmatch("(?:.*\n)*?".join(map(re.escape, parts)), done.stdout)


def test_an_ordinary_app_is_made_revocable_by_a_few_lines_which_the_page_shows(tmp_path: Path) -> None:
    """The example's patch applies to the example as it is, and adds what docs/flower.md says, and no more.

    FLARE's applies after it.
    """
    example = ROOT / "examples" / "network"
    patch, in_flare = (
        re.findall(r"<<'END'\n(.*?)^END$", (example / name).read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
        for name in ("README.md", "flare.md")
    )
    page = (ROOT / "docs" / "flower.md").read_text("utf-8")
    shown = re.findall(r"^```diff\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    parts = re.split(r"^--- a/.*\n", patch, flags=re.MULTILINE)[1:]
    most = {"network/client_app.py": 3, "network/server_app.py": 12}
    for part in parts:
        named, *lines = part.splitlines()
        file = named.removeprefix("+++ b/")
        added = [line for line in lines if line.startswith("+")]
        assert 0 < len(added) <= most.pop(file)
        (same,) = (block for block in shown if block.splitlines()[0].strip() == f"# {Path(file).name}")
        assert [line for line in same.splitlines() if line.startswith("+")] == added
    assert not most
    shutil.copytree(example / "network", tmp_path / "network")
    for diff in (patch, in_flare):
        subprocess.run(["patch", "-p1"], input=diff, text=True, cwd=tmp_path, check=True, capture_output=True)  # noqa: S607
    for file in ("client_app.py", "server_app.py"):
        compile((tmp_path / "network" / file).read_text("utf-8"), file, "exec")
