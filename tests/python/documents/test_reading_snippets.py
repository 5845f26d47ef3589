"""What reads and runs snippets notices what is wrong with a document."""

import os
from pathlib import Path

import pytest

from support.snippet_programs import source_of
from support.snippet_runs import problems_of
from support.snippets import SnippetError, difference, snippets_of


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def problems(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> list[str]:
    path = page(folder, text)
    work = folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return problems_of(path)


def test_blocks_in_lists_and_marks_over_several_lines_are_read(tmp_path: Path) -> None:
    text = "- item\n\n  <!-- snippet: not run: it takes\n  hours -->\n  ```sh\n  make bench\n  ```\n"
    text += "\n~~~~python\nx = 1\n~~~~\n"
    first, second = snippets_of(page(tmp_path, text))
    assert (first.language, first.code, first.line, first.not_run) == ("sh", "make bench\n", 6, "it takes hours")
    assert (second.language, second.code, second.line, second.runs) == ("python", "x = 1\n", 10, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- snippet: setup gpt -->\n\nprose\n\n```sh\ntrue\n```\n", "no fenced block follows the mark"),
        ("```sh\ntrue\n```\n\n<!-- snippet: prints -->\n", "no fenced block follows the mark"),
        ("<!-- snippet: never run -->\n```sh\ntrue\n```\n", "a mark that no test knows: snippet: never run"),
        ("```py\nx = 1\n```\n", "a block of the language 'py', which no test knows"),
        ("```\nx = 1\n```\n", "a block of the language '', which no test knows"),
        ("<!-- snippet: prints -->\n```text\n1\n```\n", "a printed text follows a snippet that runs"),
        ("<!-- snippet: not run: it is text -->\n```text\n1\n```\n", "a block of text is not run"),
        ("<!-- snippet: varies: x -->\n```text\n1\n```\n", "only a text that is printed varies"),
    ],
)
def test_a_mark_that_means_nothing_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SnippetError, match=message):
        snippets_of(page(tmp_path, text))


def test_a_failing_snippet_is_named_by_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "```python\nx = 1\n```\n\n```python\nassert x == 1\nassert x == 2\n```\n"
    text += "\n```sh\nfalse\n```\n\n```sh\nexit 0\n```\n"
    first, second = problems(tmp_path, monkeypatch, text)
    assert first.startswith("page.md:6: AssertionError")
    assert 'page.md", line 7' in first
    assert second == "page.md:11: SnippetError: the exit status is 1\n"


def test_what_is_printed_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printing = (
        "```python\nprint('peak 5 MiB in 3 ms')\n```\n\n<!-- snippet: prints -->\n```text\npeak {} MiB in 9 ms\n```\n"
    )
    (wrong,) = problems(tmp_path, monkeypatch, printing.format(5) + "\n" + printing.format(6))
    assert wrong.startswith("page.md:16: this is not what the snippet before prints\nexpected: peak 6 MiB")


def test_output_of_other_processes_and_of_cpp_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "```python\nimport os\nos.write(2, b'one\\n')\n```\n\n<!-- snippet: prints -->\n```text\none\n```\n"
    text += "\n```sh\necho two >&2\n```\n\n<!-- snippet: prints -->\n```text\ntwo\n```\n"
    assert problems(tmp_path, monkeypatch, text) == []


def test_torchscript_finds_the_source_of_a_snippet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "text\n\n```python\nimport torch\n\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
    text += (
        "\nclass M(torch.nn.Module):\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        return x + 1\n"
    )
    text += "```\n\n```python\nprint(torch.jit.script(f)(torch.ones(1)), torch.jit.script(M())(torch.ones(1)))\n```\n"
    text += "\n<!-- snippet: prints -->\n```text\ntensor([2.]) tensor([2.])\n```\n"
    assert problems(tmp_path, monkeypatch, text) == []


def test_replacements_have_to_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = "<!-- snippet: with true for false -->\n```sh\n{}\n```\n"
    assert problems(tmp_path, monkeypatch, mark.format("false")) == []
    os.chdir(tmp_path)
    (snippet,) = snippets_of(page(tmp_path, mark.format("exit 1")))
    with pytest.raises(SnippetError, match="a mark replaces false, which the snippet does not have"):
        snippet.text()


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("a  b\n", "a b", True),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\n", "a\n", True),
        ("a\n...\nz\n", "a\nb\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        ("peak ... MiB\n", "peak 3.5 MiB\n", True),
        ("peak ... MiB\n", "peak 3.5 GiB\n", False),
        ("12.5 ms, 3 MiB", "1.2 s, 3 MiB", True),
        ("12.5 ms, 3 MiB", "1.2 s, 4 MiB", False),
    ],
)
def test_texts_are_compared_word_by_word(expected: str, printed: str, equal: bool) -> None:
    assert (difference(expected, printed, []) is None) == equal


def test_only_what_varies_is_left_out() -> None:
    assert difference("a 0.40 7", "a 0.53 7", [r"\d\.\d\d"]) is None
    assert difference("a 0.40 7", "a 0.53 8", [r"\d\.\d\d"]) is not None


def test_programs_keep_lines_and_includes(tmp_path: Path) -> None:
    text = (
        "<!-- snippet: setup batch -->\n```cpp\n#include <map>\n\nf();\n```\n\n```cpp\nint main() { return 0; }\n```\n"
    )
    source = source_of(snippets_of(page(tmp_path, text)))
    assert source.index("#include <map>") < source.index("SETUP_batch") < source.index("f();")
    assert f'#line 3 "{tmp_path}/page.md"' in source
    assert "int program() { return 0; }" in source
    assert source.count("int main(") == 1
