"""Compiles all C++ snippets of the documents into one program, and runs it."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import torch

from support.snippets import Snippet, SnippetError, problem_with

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build"
SETUPS = Path(__file__).with_name("snippet_setups.h")
# A program of the repository that uses the library as users do: snippets are compiled with its flags.
LIKE = "examples/cpp_torch_nn/main.cpp"
MARKER = "\x1e"  # printed before each snippet: what follows is what that one prints


def source_of(snippets: list[Snippet]) -> str:
    """Returns a program that runs the snippets in their order. Each is a function in a namespace of its own."""
    includes, functions, calls = [f'#include "{SETUPS}"'], [], []
    for index, snippet in enumerate(snippets):
        code = snippet.text()
        includes += re.findall(r"(?m)^#include .*$", code)
        code = re.sub(r"(?m)^#include .*$", "", code)
        setups = "\n".join(f"SETUP_{name}" for name in snippet.setups)
        line = f'#line {snippet.line} "{snippet.page}"\n'
        if "int main(" in code:
            body = f"{line}{code.replace('int main(', 'int program(')}\nvoid run() {{ program(); }}\n"
        else:
            body = f"void run() {{\n{setups}\n{line}{code}\n}}\n"
        functions.append(f"namespace snippet_{index} {{\n{body}}}\n")
        calls.append(f'  std::cout << "{MARKER}" << std::flush;\n  snippet_{index}::run();\n  std::cout << std::flush;')
    before = ["int main() {", "  torch::manual_seed(0);", "  at::set_num_threads(1);", "  std::cerr.tie(&std::cout);"]
    main = "\n".join([*before, *calls, "}\n"])
    return "\n".join([*dict.fromkeys(includes), *functions, main])


def compile_command(source: Path, program: Path) -> list[str]:
    """Returns the command that compiles and links a program as the examples of the repository are compiled."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    command = next(each["command"] for each in entries if each["file"].endswith(LIKE))
    words = shlex.split(command)
    words[words.index("-o") + 1] = str(program)
    words[words.index("-c") + 1] = str(source)
    words.remove("-c")
    # No cache of compiled files and no optimization, which the precompiled header needs: each snippet runs once.
    if "-include" in words:
        header = words.index("-include")
        del words[header : header + 2]
    words = [
        word for word in words[next(i for i, word in enumerate(words) if word.endswith("++")) :] if word[:2] != "-O"
    ]
    torch_folder = Path(torch.__file__).parent / "lib"
    folders = [str(BUILD), str(torch_folder)]
    links = [f"-L{folder}" for folder in folders] + [f"-Wl,-rpath,{folder}" for folder in folders]
    libraries = ["-laten_recompute", "-ltorch", "-ltorch_cpu", "-lc10"]
    return [*words, "-O0", "-g0", "-w", "-Wl,--no-as-needed", *links, *libraries]


def problems_of_programs(snippets: list[Snippet], printed: dict[int, Snippet], folder: Path) -> list[str]:
    """Compiles and runs the snippets in ``folder``; returns a text for each that fails or prints something else.

    ``printed`` has the texts that documents say snippets print, by the index of the snippet.
    """
    source, program = folder / "snippets.cpp", folder / "snippets"
    source.write_text(source_of(snippets))
    compiled = subprocess.run(compile_command(source, program), capture_output=True, text=True, check=False, cwd=BUILD)
    if compiled.returncode:
        return [f"the C++ snippets do not compile:\n{compiled.stderr}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RECOMPUTE")}
    finished = subprocess.run(
        [program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=folder, env=environment
    )
    parts = finished.stdout.split(MARKER)[1:]
    if finished.returncode:
        place = snippets[len(parts) - 1].place if parts else "before the first snippet"
        return [f"{place}: the exit status is {finished.returncode}\n{parts[-1] if parts else finished.stdout}"]
    if len(parts) != len(snippets):
        raise SnippetError(f"{len(parts)} of {len(snippets)} snippets ran")
    return [problem for index, text in printed.items() if (problem := problem_with(text, parts[index]))]
