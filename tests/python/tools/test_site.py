"""The site of documents: what stands in its navigation, and where its links lead. `make docs` builds it."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAVIGATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.fixture
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "tools" / "site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeFiles:
    """What MkDocs knows of the files of docs/."""

    def get_file_from_path(self, path: str) -> str | None:
        return path if (ROOT / "docs" / path).is_file() else None


def rewritten(hooks: ModuleType, page: str, text: str, repo_url: str | None = None) -> str:
    class File:
        src_uri = page

    class Page:
        file = File

    config: dict[str, Any] = {"repo_url": repo_url}
    result: str = hooks.on_page_markdown(text, Page, config, FakeFiles())
    return result


def test_every_document_is_in_the_navigation(hooks: ModuleType) -> None:
    pages = set(re.findall(r": ([\w/]+\.md)$", NAVIGATION, re.MULTILINE))
    generated = {*hooks.BESIDE_THE_README, "index.md", "install.md", "reference/python.md"}
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").glob("**/*.md")}
    listed_by_folder = {path for path in documents if path.startswith(("decisions/", "measurements/"))}
    assert documents - listed_by_folder - pages == {"README.md"}  # whose part the navigation takes
    assert {page for page in pages if not page.startswith("cpp/")} - generated <= documents


def test_the_reference_has_every_name_of_the_package(hooks: ModuleType) -> None:
    tree = ast.parse((ROOT / "python" / "aten_recompute" / "__init__.py").read_text(encoding="utf-8"))
    (exported,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    shown = re.findall(r"(?m)^::: aten_recompute\.(\w+)$", hooks.python_reference())
    assert len(shown) > 40
    assert sorted([*shown, "__version__"]) == sorted(exported)


def test_the_page_install_has_the_commands_of_the_readme(hooks: ModuleType) -> None:
    text = hooks.generated_pages()["install.md"]
    assert re.findall(r"(?m)^## (.*)$", text) == list(hooks.INSTALL)
    assert "pip install --no-build-isolation ." in text
    assert "cmake --preset release" in text


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("index.md", "[a](docs/budgets.md#shapes)", "[a](budgets.md#shapes)"),
        ("install.md", "[a](docs/measurements/README.md)", "[a](measurements/README.md)"),
        ("budgets.md", "[a](decisions/)", "[a](decisions/README.md)"),
        ("tutorials/forces.md", "[a](../forces.md)", "[a](../forces.md)"),
        ("tutorials/forces.md", "[a](../../README.md)", "[a](../index.md)"),
        ("README.md", "[a](../CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("CONTRIBUTING.md", "[a](docs/design.md#the-tree)", "[a](design.md#the-tree)"),
        ("index.md", "![a](docs/images/peak_and_time.svg)", "![a](images/peak_and_time.svg)"),
        ("cpp.md", "[cpp_train](../examples/cpp_train) is one", "cpp_train is one"),
        ("cpp.md", "[errors.h](../include/aten_recompute/errors.h)", "`errors.h`"),
        ("cpp.md", "[a](https://example.com/b.md) [c](#d)", "[a](https://example.com/b.md) [c](#d)"),
        ("cpp.md", "`[a](../README.md)`", "`[a](../README.md)`"),
        ("cpp.md", "```text\n[a](../README.md)\n```", "```text\n[a](../README.md)\n```"),
        ("index.md", "[`lower`](docs/cpp.md) and `x`", "[`lower`](cpp.md) and `x`"),
    ],
)
def test_links_lead_to_pages_of_the_site(hooks: ModuleType, page: str, text: str, expected: str) -> None:
    assert rewritten(hooks, page, text) == expected


def test_a_link_that_leads_nowhere_is_a_warning(hooks: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    assert rewritten(hooks, "cpp.md", "[a](../tools/none.py) [b](../README.md)") == "a [b](index.md)"
    assert [record.getMessage() for record in caplog.records] == [
        "docs/cpp.md: the link ../tools/none.py leads nowhere"
    ]


def test_links_to_sources_lead_to_the_repository_where_it_is_named(hooks: ModuleType) -> None:
    link = rewritten(hooks, "cpp.md", "[cpp_train](../examples/cpp_train)", "https://example.com/project/")
    assert link == "[cpp_train](https://example.com/project/blob/main/examples/cpp_train)"
