"""``tools/check_names.py`` accepts this repository and prints names that two sources of a folder define."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def check(root: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "check_names.py"), str(root)], capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def write(root: Path, name: str, body: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"namespace aten_recompute {{\nnamespace {{\n\n{body}\n}}  // namespace\n}}\n")


def test_this_repository_is_accepted() -> None:
    assert check(ROOT) == (0, [])


def test_a_function_with_other_parameters_is_found(tmp_path: Path) -> None:
    write(tmp_path, "rules/a.cpp", "bool is_known(const Node* node) {\n  return true;\n}\n")
    write(
        tmp_path,
        "rules/b.cpp",
        "using torch::jit::Node;\n\nbool is_known(Node* node,\n              int x) {\n  return false;\n}\n",
    )
    status, lines = check(tmp_path)
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("rules/b.cpp:6: is_known is also defined in a.cpp")


def test_types_and_constants_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, f"ir/{name}.cpp", "struct Block {\n  int x;\n};\n\nconstexpr int kMost = 3;\n")
    assert [line.split()[1] for line in check(tmp_path)[1]] == ["Block", "kMost"]


def test_other_folders_methods_and_aliases_are_accepted(tmp_path: Path) -> None:
    write(tmp_path, "ir/a.cpp", "using Clock = std::chrono::steady_clock;\n\nclass A {\n  void run() {\n  }\n};\n")
    write(tmp_path, "ir/b.cpp", "using Clock = std::chrono::steady_clock;\n\nclass B {\n  void run() {\n  }\n};\n")
    write(tmp_path, "runtime/a.cpp", "class A {\n};\n")
    assert check(tmp_path) == (0, [])
