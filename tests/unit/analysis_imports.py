"""What commands import, found in an environment: run by its Python, with the commands' names.

Imports every module that the commands' handlers in scalewatt.cli name, and prints as JSON what they
reach of scalewatt, and what of others' packages these modules import only when they need it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from pathlib import Path

from scalewatt.cli import COMMANDS
from scalewatt.cli.command import Handler


def modules_in(tree: ast.AST) -> set[str]:
    """All modules that a piece of code imports, relative ones aside."""
    found = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    plain = [n for n in ast.walk(tree) if isinstance(n, ast.Import)]
    return found | {alias.name for node in plain for alias in node.names}


def functions_of(handler: Handler) -> list[ast.AST]:
    """A command's handler, and the functions of its module that it calls."""
    source = ast.parse(Path(inspect.getfile(handler)).read_text())
    own = {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}
    found: dict[str, ast.AST] = {}
    wanted = [handler.__name__]
    while wanted:
        one = wanted.pop()
        if one in own and one not in found:
            found[one] = own[one]
            called = [n for n in ast.walk(own[one]) if isinstance(n, ast.Name)]
            wanted += [n.id for n in called]
    return list(found.values())


def main(commands: list[str]) -> None:
    """Import and print."""
    for command in commands:
        for function in functions_of(COMMANDS[command].handler):
            for module in modules_in(function):
                importlib.import_module(module)
    reached = sorted(name for name in sys.modules if name.partition(".")[0] == "scalewatt")
    later = {}
    for name in reached:
        tree = ast.parse(Path(str(sys.modules[name].__file__)).read_text())
        others = {module.partition(".")[0] for module in modules_in(tree)}
        later[name] = sorted(others - sys.stdlib_module_names - {"scalewatt"})
    print(json.dumps({"reached": reached, "imports": later, "loaded": sorted(sys.modules)}))


main(sys.argv[1:])
