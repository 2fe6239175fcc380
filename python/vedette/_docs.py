"""Docstrings at run time: they are written once, in __init__.pyi, for type checkers and editors, and help() shows them, too."""

import ast
import pathlib


def _tell(what, text):
    if text is not None:
        what.__doc__ = text


def _of_class(kind, node):
    _tell(kind, ast.get_docstring(node))
    for each, after in zip(node.body, [*node.body[1:], None]):
        if isinstance(each, ast.FunctionDef):
            member = vars(kind).get(each.name)
            if member is not None:
                _tell(member, ast.get_docstring(each))
        elif isinstance(each, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            member = vars(kind).get(each.target.id)
            if isinstance(member, property):
                _tell(member, after.value.value)


def take_from_stub(names):
    """`names`: what the package exports, by name. Classes get their members' docstrings, too."""
    stub = pathlib.Path(__file__).with_name("__init__.pyi")
    try:
        tree = ast.parse(stub.read_text(encoding="utf-8"))
    except OSError:  # an installation without the stub has no docstrings
        return
    for node in tree.body:
        what = names.get(getattr(node, "name", None))
        if what is None:
            continue
        if isinstance(node, ast.ClassDef):
            _of_class(what, node)
        elif isinstance(node, ast.FunctionDef):
            _tell(what, ast.get_docstring(node))
