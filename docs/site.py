"""What mkdocs does beside turning pages into HTML: what stands elsewhere, or in the code, becomes part of the site.

Links are written for the repository, where people read them too, and are turned here to where a page went.
"""

from __future__ import annotations

import ast
import base64
import json
import posixpath
import re
import subprocess
import sys
from pathlib import Path

from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
MOVED = {
    "network.md": "examples/network/README.md",
    "flare.md": "examples/network/flare.md",
    "hospitals.md": "examples/hospitals/README.md",
    "hospitals-deployment.md": "examples/hospitals/deployment.md",
    "images.md": "examples/images/README.md",
    "pretrained.md": "examples/pretrained/README.md",
    "pretrained-deployment.md": "examples/pretrained/deployment.md",
    "sifu.md": "examples/sifu/README.md",
    "notebooks/start.md": "examples/notebooks/start.ipynb",
    "notebooks/pretrained.md": "examples/notebooks/pretrained.ipynb",
    "notebooks/certificate.md": "examples/notebooks/certificate.ipynb",
    "decisions.md": "docs/adr/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
FIGURES = ROOT / "experiments" / "figures"
# As a reader would want them: first what is ours, then the paper's.
ORDER = (
    *("pretrained", "staged", "late", "solved", "map", "hospitals", "noise", "methods", "frozen"),
    *("sequential", "watermark", "limited", "sigma", "classes", "distances"),
    *(
        "released",
        "networks",
        "networks_paper",
        "networks_watermark",
        "networks_limited",
        "networks_sigma",
        "networks_classes",
        "networks_distances",
    ),
)
_FROM = {
    "README.md": "index.md",
    "experiments/README.md": "results.md",
    **{source: page for page, source in MOVED.items()},
}
_FIGURE = re.compile(r"experiments/figures/(\w+)/README\.md")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not under docs/."""
    for page, source in MOVED.items():
        text = (ROOT / source).read_text("utf-8")
        if source.endswith(".ipynb"):
            text, pictures = notebook(text, page.removesuffix(".md"))
            for name, content in pictures.items():
                files.append(File.generated(config, name, content=content))
        files.append(File.generated(config, page, content=text))
    for page, text in api().items():
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "cli.md", content=command_line()))
    files.append(File.generated(config, "results.md", content=results()))
    for figure in ORDER:
        if (picture := FIGURES / figure / "figure.svg").exists():
            files.append(File.generated(config, f"results/{figure}.svg", abs_src_path=str(picture)))
    return files


def notebook(text: str, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as a page, with what its cells show, and the pictures among it by their files."""
    parts, pictures = [], dict[str, bytes]()
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if picture := data.get("image/png"):
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(picture)
                parts.append(f"![What this cell draws](../../docs/{file})")
            else:
                shown = "".join(output.get("text") or data["text/plain"]).rstrip()
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts), pictures


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn the links of a page."""
    here = page.file.src_uri
    source = MOVED.get(here, f"docs/{here}")
    return _LINK.sub(lambda found: turned(found, here, source, files), markdown)


def turned(found: re.Match[str], here: str, source: str, files: Files) -> str:
    """Return a link as the site needs it; what the site does not have is left as words."""
    mark, words, target = found.groups()
    path, _, anchor = target.partition("#")
    if re.match(r"[a-z]+:", target) or not path:
        return found[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    figure = _FIGURE.fullmatch(file)
    if figure and shown(figure[1]):
        page = posixpath.relpath("results.md", posixpath.dirname(here) or ".")
        return f"{mark}[{words}]({page}#{place_of(figure[1])})"
    page = _FROM.get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
    if files.get_file_from_path(page) is None:
        return words
    new = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{mark}[{words}]({new}{'#' + anchor if anchor and file not in _FROM else ''})"


def shown(figure: str) -> bool:
    """Return whether a figure is on the page of results."""
    return figure in ORDER


def place_of(figure: str) -> str:
    """Return the anchor of a figure's heading on the page of results."""
    return slugify((FIGURES / figure / "README.md").read_text("utf-8").partition("\n")[0].removeprefix("# "), "-")


def public() -> dict[str, list[str]]:
    """Return what stays (docs/formats.md): modules with what they export, or with themselves if they list nothing."""
    package = ROOT / "src"
    suites = sorted(path.stem for path in (package / "rescind" / "testing").glob("[!_]*.py"))
    modules = ["rescind", "rescind.flower", "rescind.simulation", "rescind.errors"]
    found = {}
    for module in [*modules, *(f"rescind.testing.{suite}" for suite in suites)]:
        path = package.joinpath(*module.split("."))
        # By the file: to import some of them would import torch.
        tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8"))
        lists = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        names = [name for each in lists for name in ast.literal_eval(each)]
        found[module] = [f"{module}.{name}" for name in names if f"{module}.{name}" not in modules] or [module]
    return found


def api() -> dict[str, str]:
    """Return the reference of what stays, a page for each package."""
    pages: dict[str, list[str]] = {}
    for module, names in public().items():
        package = module.split(".")[1] if "." in module else module
        parts = pages.setdefault(f"api/{package}.md", [f"# {'.'.join(module.split('.')[:2])}"])
        parts += [f"::: {name}" for name in names]
    return {page: "\n\n".join(parts) for page, parts in pages.items()}


def results() -> str:
    """Return what the experiments found, each in its README's own words."""
    parts = ["# Results", "Each figure is made by one command, from rows that are stored in `experiments/figures`."]
    for name in filter(shown, ORDER):
        text = (FIGURES / name / "README.md").read_text("utf-8")
        # Its links begin at its folder, this page's begin at docs/.
        text = text.replace("](../", f"](../experiments/figures/{name}/../")
        parts.append(re.sub(r"^#", "##", text.replace("](figure.svg)", f"](results/{name}.svg)"), flags=re.MULTILINE))
    return "\n\n".join(parts)


def command_line() -> str:
    """Return the reference of the command line, as its help texts have it."""
    words = [sys.executable, "-m", "typer", "rescind.cli", "utils", "docs", "--name", "rescind"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.replace("# `rescind`", "# Command line", 1)
