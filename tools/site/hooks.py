"""What MkDocs calls while it builds the site: pages that no file of docs/ is, and links that lead out of docs/.

The documents are written for a reader of the repository: links are paths between files of it. On the site, a link to
a document leads to its page; one to another file leads to the repository if REPOSITORY_URL names it, and is only its
text otherwise.
"""

import ast
import logging
import posixpath
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LOG = logging.getLogger("mkdocs.hooks")  # MkDocs counts its warnings
BESIDE_THE_README = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
# The headings of the README that the page "Install" has.
INSTALL = ("Requirements", "Try it", "Install")
LINK = re.compile(r'(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?([^)\s>]+)>?(\s+"[^"]*")?\s*\)')
FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE = re.compile(r"`[^`]*`")


def sections(text: str, headings: tuple[str, ...]) -> str:
    """Returns the sections of a Markdown text that have these headings of the second level."""
    parts = re.split(r"(?m)^(?=## )", text)
    return "".join(part for part in parts if part.partition("\n")[0].removeprefix("## ") in headings)


def python_reference() -> str:
    """Returns a page with each name that the package exports, functions and classes under headings of their own."""
    package = ROOT / "python" / "aten_recompute" / "__init__.py"
    for node in ast.parse(package.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            exported: list[str] = ast.literal_eval(node.value)
    names = [name for name in exported if name not in ("passes", "__version__")]
    functions = [name for name in names if name.islower()]
    classes = [name for name in names if not name.islower()]
    directives = "\n\n".join(f"::: aten_recompute.{name}" for name in functions)
    types = "\n\n".join(f"::: aten_recompute.{name}" for name in classes)
    return (
        f"# Python\n\n## Functions\n\n{directives}\n\n## Passes\n\n::: aten_recompute.passes\n    options:\n"
        f"      show_root_heading: false\n\n## Classes\n\n{types}\n"
    )


def generated_pages() -> dict[str, str]:
    """Returns the texts of the pages that no file of docs/ is, by their paths on the site."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in BESIDE_THE_README}
    pages["index.md"] = readme
    pages["install.md"] = "# Install\n\n" + sections(readme, INSTALL)
    pages["reference/python.md"] = python_reference()
    return pages


def on_files(files: "Files", config: Any) -> "Files":
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def path_in_repository(src_uri: str) -> str:
    """Returns the path, in the repository, of the document that a page of the site comes from."""
    if src_uri in ("index.md", "install.md"):
        return "README.md"
    return src_uri if src_uri in BESIDE_THE_README else f"docs/{src_uri}"


def path_on_site(path: str, files: "Files") -> str | None:
    """Returns the path, on the site, of a file of the repository; None if it is no part of the site."""
    if path in ("README.md", "docs", "docs/README.md"):
        return "index.md"
    if path in BESIDE_THE_README:
        return path
    inside = path.removeprefix("docs/")
    if inside == path:
        return None
    for candidate in (inside, f"{inside}/README.md"):
        if files.get_file_from_path(candidate) is not None:
            return candidate
    return None


def on_page_markdown(markdown: str, page: "Page", config: Any, files: "Files") -> str:
    source = page.file.src_uri
    if source.startswith(("cpp/", "reference/")):
        return markdown
    folder = posixpath.dirname(path_in_repository(source))

    def on_site(match: re.Match[str]) -> str:
        image, text, target, title = match[1], match[2], match[3], match[4] or ""
        path, mark, fragment = target.partition("#")
        if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, path))
        if (found := path_on_site(path, files)) is not None:
            relative = posixpath.relpath(found, posixpath.dirname(source) or ".")
            return f"{image}[{text}]({relative}{mark}{fragment}{title})"
        if not (ROOT / path).exists():
            LOG.warning("%s: the link %s leads nowhere", path_in_repository(source), target)
        if config["repo_url"]:
            return f"[{text}]({config['repo_url'].rstrip('/')}/blob/main/{path})"
        return text if text != path and not text.endswith((".h", ".cpp", ".py")) else f"`{text}`"

    return outside_code(markdown, partial(LINK.sub, on_site))


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Applies ``change`` to all lines of a text but those of code blocks. Code within a line stays, too."""
    lines, fence = [], None
    for line in markdown.split("\n"):
        match = FENCE.match(line)
        if fence is not None:
            if match and match[1].startswith(fence) and line.strip() == match[1]:
                fence = None
        elif match:
            fence = match[1]
        else:
            line = without_code(line, change)
        lines.append(line)
    return "\n".join(lines)


def without_code(line: str, change: Callable[[str], str]) -> str:
    """Applies ``change`` to a line in which a mark stands for each span of code."""
    spans: list[str] = []

    def hide(span: re.Match[str]) -> str:
        spans.append(span[0])
        return f"\0{len(spans) - 1}\0"

    def show(mark: re.Match[str]) -> str:
        return spans[int(mark[1])]

    return re.sub("\0(\\d+)\0", show, change(CODE.sub(hide, line)))
