"""The project's own files: citation, decision records, metadata, changelog, links, names, the gate."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import metadata
from pathlib import Path
from select import select

import pytest

import rescind

ROOT = Path(__file__).resolve().parents[1]
RECORDS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINKED = [*PAGES, *sorted([*(ROOT / "experiments").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])]
EXPECT = ROOT / ".ci" / "expect"
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
BASH = shutil.which("bash") or "/bin/bash"

PAPER = (
    "SIFU: Sequential Informed Federated Unlearning for Efficient and Provable Client Unlearning"
    " in Federated Optimization"
)
# Written in halves, because this file is searched like all others.
FORBIDDEN = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "download." + "pytorch.org",
    "ana" + "conda.org",
    "/wo" + "rk/",
    "/ro" + "ot/",
    "/op" + "t/",
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_citation_names_the_version_and_the_paper():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r'^version: "?([^"\n]+)"?$', text, re.MULTILINE) == [rescind.__version__]
    assert re.findall(r"^cff-version: (\S+)$", text, re.MULTILINE) == ["1.2.0"]
    software, _, references = " ".join(text.split()).partition(" references: ")
    assert "type: software" in software
    assert "type: conference-paper" in references
    assert PAPER in references
    for author in ("Fraboni", "Van Waerebeke", "Vidal", "Kameni", "Scaman", "Lorenzi"):
        assert f"family-names: {author}" in references


def test_the_extras_are_in_the_metadata():
    extras = metadata("rescind").get_all("Provides-Extra") or []
    assert {"flower", "simulation", "postgres", "s3", "report", "dev"} <= set(extras)


def test_requirements_have_no_upper_bounds():
    requirements = metadata("rescind").get_all("Requires-Dist") or []
    assert requirements
    assert [line for line in requirements if re.search(r"<|==|~=", line.partition(";")[0])] == []


def test_the_changelog_begins_with_this_version_and_has_lines_for_it():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^## (.+?)$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None
    released = rf"{re.escape(rescind.__version__)}, \d{{4}}-\d\d-\d\d"
    assert re.fullmatch("Unreleased" if ".dev" in rescind.__version__ else released, section[1])
    assert re.search(r"^- \S", section[2], re.MULTILINE)


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_a_decision_record_is_short_complete_and_indexed(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 110
    heading = re.fullmatch(r"# (\d+)\. (.+)", lines[0])
    assert heading is not None
    assert f"{int(heading[1]):04d}" == path.name[:4]
    assert re.fullmatch(r"Status: (accepted, \d{4}-\d{2}-\d{2}|replaced by \d{4})", lines[1])
    for part in ("Context", "Decision", "Consequence"):
        assert sum(line.startswith(f"- {part}: ") for line in lines) == 1
    index = (path.parent / "README.md").read_text(encoding="utf-8")
    assert f"| [{path.name[:4]}]({path.name}) | {heading[2]} |" in index


def test_decision_records_are_numbered_without_gaps():
    assert RECORDS
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_every_promise_of_the_threat_model_names_a_test_that_exists():
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    _, *promises = re.split(r"^## An? |^## Several ", text, flags=re.MULTILINE)
    rows = [line for part in promises for line in part.splitlines() if re.match(r"\| (?!promise|attack|---)", line)]
    assert rows
    assert [row for row in rows if "::test_" not in row] == []
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(test_\w+)`", text))
    assert len(named) >= len(rows) // 2
    missing = [
        (file, test) for file, test in named if not re.search(rf"def {test}\(", (ROOT / file).read_text("utf-8"))
    ]
    assert missing == []


@pytest.mark.parametrize("path", LINKED, ids=name_of)
def test_links_between_pages_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`|\$[^$\n]*\$", "", text)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in links if not (path.parent / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_an_app_as_flowers_hub_takes_it(example, tmp_path):
    app = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    assert app["fab-format-version"] == 1
    assert (example / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    # Flower's own checks: of the licence, and of its version.
    command = [Path(sys.executable).parent / "flwr", "build", "--app", example]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=os.environ | {"FLWR_HOME": tmp_path})
    (bundle,) = tmp_path.glob("*.fab")
    sent = {Path(name).parts[0] for name in zipfile.ZipFile(bundle).namelist()}
    assert sent == {example.name, "LICENSE", "pyproject.toml", ".info"}
    # What a run needs is said without anybody's folders.
    paths = [value for value in app["config"].values() if isinstance(value, str) and "/" in value]
    assert all(path.startswith("~") for path in paths)


# Loads once what takes longest; each block is a process of its own.
LOADED = """
import json, os, sys
import scipy.optimize, scipy.stats, sqlalchemy, torch.fx.experimental.symbolic_shapes
# Some pages are about a checkout.
sys.path.append(os.getcwd())
for line in sys.stdin:
    code, folder = json.loads(line)
    if not (child := os.fork()):
        os.chdir(folder)
        for stream, name in ((1, "printed"), (2, "complained")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        exec(code, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def loaded():
    command = [sys.executable, "-W", "error", "-c", LOADED]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("path", [path for path in PAGES if "```python" in path.read_text("utf-8")], ids=name_of)
def test_the_examples_of_a_page_print_what_the_page_says(path, tmp_path, loaded):
    text = path.read_text("utf-8")
    if "rescind.mlflow" in text:
        pytest.importorskip("mlflow", reason="`.ci/full mlflow` installs it")
    blocks = re.findall(r"^```python\n(.*?)^```\n^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python") > 0
    for code, shown in blocks:
        print(json.dumps([code, str(tmp_path)]), file=loaded.stdin, flush=True)
        assert select([loaded.stdout], [], [], 120)[0], f"this takes more than two minutes:\n{code}"
        assert loaded.stdout.readline() == "0\n", (tmp_path / "complained").read_text()
        assert (tmp_path / "printed").read_text() == shown


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_nothing_is_committed_that_is_no_source():
    words = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    ignored = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ignored == ""


def test_no_file_names_a_package_registry_or_a_machine_path():
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = [git, "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert Path(__file__).resolve() in files
    named = [
        (name_of(path), word)
        for path in files
        for word in FORBIDDEN
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert named == []


@pytest.mark.skipif(not EXPECT.exists(), reason="the gate is not part of a source distribution")
@pytest.mark.parametrize(
    ("output", "arguments", "code", "printed"),
    [
        ('a line\n{"wrong": 0, "error": 1e-12}\n', ["wrong == 0", "error <= 1e-9"], 0, "wrong == 0: holds"),
        ('{"wrong": 1}', ["wrong == 0"], 1, "FAILED, measured 1"),
        ('{"wrong": 0}', ["violations == 0"], 1, "no key 'violations'"),
        ('{"wrong": NaN}', ["wrong <= 1"], 1, "not a finite number"),
        ('{"wrong": false}', ["wrong == 0"], 1, "not a number"),
        ('{"wrong": 0}\nTraceback', ["wrong == 0"], 1, "not JSON"),
        ("", ["wrong == 0"], 1, "printed nothing"),
        ('{"wrong": 0}', ["wrong = 0"], 2, "not KEY OP NUMBER"),
        ('{"ratio": 3}', ["--target", "ratio >= 5"], 0, "not reached, measured 3"),
        ('{"ratio": 7}', ["--target", "ratio >= 5"], 0, "reached, measured 7"),
    ],
)
def test_the_gate_reads_measurements_strictly(output, arguments, code, printed):
    command = [sys.executable, str(EXPECT), *arguments]
    done = subprocess.run(command, input=output, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code
    assert printed in done.stdout + done.stderr


@pytest.mark.skipif(not EXPECT.exists(), reason="the gate is not part of a source distribution")
@pytest.mark.parametrize(
    ("name", "says", "code"),
    [
        ("one", "License-Expression: MIT AND (Apache-2.0)", 1),
        ("one", "License-Expression: MIT AND Apache-2.0", 0),
        ("one", "License-Expression: GPL-3.0-only OR MIT", 0),
        ("one", "License-Expression: GPL-3.0-only AND MIT", 1),
        ("one", "License: MIT\nClassifier: License :: OSI Approved :: BSD License", 0),
        ("one", "License: MIT\nClassifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)", 1),
        ("one", "License: Apache 2.0", 0),
        ("one", "License: as you like", 1),
        ("one", "Summary: of no licence", 1),
        ("one", "License-Expression: LGPL-3.0-only", 1),
        ("Psycopg_Binary", "License-Expression: LGPL-3.0-only", 0),
        ("Psycopg_Binary", "License-Expression: GPL-3.0-only", 1),
    ],
)
def test_a_licence_that_is_not_known_to_go_with_ours_is_refused(tmp_path, name, says, code):
    folder = tmp_path / f"{name}-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1\n{says}\n")
    command = [sys.executable, str(ROOT / ".ci" / "licences"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, bool(done.stderr)) == (code, bool(code)), done.stderr


def sources(*but: str) -> list[Path]:
    paths = sorted((ROOT / "src" / "rescind").rglob("*.py"))
    return [path for path in paths if path.relative_to(ROOT / "src" / "rescind").parts[0] not in but]


def test_a_history_is_asked_not_its_ledger():
    for path in sources("history", "views", "ledger", "testing"):
        accesses = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute) and node.attr in ("ledger", "_ledger")
        ]
        assert not accesses, f"{name_of(path)}: line {accesses[0]} reads a history's ledger"


def test_tests_reach_a_ledger_through_their_builders_and_import_no_other_test():
    for path in (ROOT / "tests").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        accesses = [node.lineno for node in nodes if isinstance(node, ast.Attribute) and node.attr == "ledger"]
        assert path.name == "builders.py" or not accesses, f"{path}: line {accesses[0]} reads a history's ledger"
        modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        tests = [module for module in modules if module.startswith("tests.") and ".test_" in module]
        assert not tests, f"{path} imports {tests[0]}"


def test_no_event_is_named_by_a_bare_string():
    for path in sources("testing"):
        if path.name in ("events.py", "contract.py"):
            continue
        calls = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (
                (node.func.attr in ("entries", "_append") and any(map(is_text, node.args)))
                or (node.func.attr == "append" and len(node.args) > 1 and is_text(node.args[0]))
            )
        ]
        assert not calls, f"{name_of(path)}: line {calls[0]} names an event by a string"


EMPTY_WORDS = {"each", "found", "there", "said", "given", "what"}


def test_locals_and_arguments_are_called_after_the_thing_they_hold():
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # The fields of a class may be part of a format that is written to files.
        fields = {
            id(statement.target)
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for statement in node.body
            if isinstance(statement, ast.AnnAssign)
        }
        bound = [
            (node.lineno, name) for node in ast.walk(tree) if id(node) not in fields for name in names_bound(node)
        ]
        empty = [f"line {line} binds {name!r}" for line, name in bound if name in EMPTY_WORDS]
        assert not empty, f"{name_of(path)}: {empty[0]}, which does not say what it holds"


def names_bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return [node.name] if node.name else []
    return []


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_public_face_is_small_and_loads():
    assert set(dir(rescind)) == {*rescind.__all__, "__version__"}
    assert len(rescind.__all__) <= 28
    assert all(getattr(rescind, name) is not None for name in rescind.__all__)


@pytest.mark.skipif(not EXPECT.exists(), reason="the gate is not part of a source distribution")
@pytest.mark.parametrize(
    ("line", "steps", "code", "ended"),
    [
        ("true", "finish one", 0, False),
        ("true", "finish one; exit 3", 3, False),
        ("exit 5", "finish one; exit 3", 5, False),
        # Not in front: bash would hear of the signal when the sleep is over, if it came just before it began.
        (
            "sleep 60 & touch $scratch/begun; wait",
            "until [[ -e $scratch/begun ]]; do sleep 0.1; done; exit 3",
            3,
            True,
        ),
    ],
)
def test_the_gate_ends_as_its_main_line_does_and_ends_what_runs_beside(tmp_path, line, steps, code, ended):
    own = f"run_one() {{ trap 'touch {tmp_path}/ended; exit' TERM; {line}; }}"
    jobs = f"scratch=$(mktemp -d -p {tmp_path})\n. {ROOT}/.ci/jobs"
    script = f"set -euo pipefail\n{jobs}\n{own}\nstart one\n{steps}\n"
    assert subprocess.run([BASH, "-c", script], check=False, timeout=30).returncode == code
    assert [path.name for path in tmp_path.iterdir()] == (["ended"] if ended else [])


RELEASE = ROOT / ".ci" / "release"
needs_release = pytest.mark.skipif(not RELEASE.exists(), reason="the gate is not part of a source distribution")


@needs_release
def test_a_release_takes_checksums_before_anything_but_the_builder_is_installed():
    steps = re.findall(
        r"^ *(install_tools \w+|install_in \S+|write_bill \w+|build_packages|take_sums \S+)",
        RELEASE.read_text(),
        re.M,
    )
    assert steps[:3] == ["install_tools build", "build_packages", 'take_sums "$(basename']
    # What is not pinned comes after everything but the list of its licences.
    unpinned = steps.index('install_in "$scratch/all"')
    assert [step for step in steps[unpinned:] if not step.startswith("install_in")] == ["take_sums licences.md"]


@needs_release
@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        ("true", None),
        ("echo changed > rescind.whl", "a file was changed after it was finished"),
        ("echo new > other.whl", "has files without a checksum"),
        ("rm rescind.whl", "a file was changed after it was finished"),
    ],
)
def test_what_changes_a_finished_file_of_a_release_ends_it(meanwhile, said, tmp_path):
    text = RELEASE.read_text()
    (define,) = re.findall(r"^sums=\ntake_sums\(\) \{.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "rescind.whl").write_text("wheel")
    (tmp_path / "licences.md").write_text("licences")
    script = "\n".join(
        [
            f"set -euo pipefail; folder='{tmp_path}'; cd '{tmp_path}'",
            'heading() { :; }; give_up() { echo "$1" >&2; exit 2; }',
            f"{define}take_sums rescind.whl\n{meanwhile}",
            text.partition('heading "checksums"\n')[2],
        ]
    )
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if said else 0), done.stderr
    assert said is None or said in done.stderr
