"""What editors read in the stubs is what ``help()`` says, and what can be called."""

import ast
import inspect
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

import spardl
from spardl import _native

STUB = pathlib.Path(spardl.__file__).with_name("_native.pyi")
TYPES = ("DLPack", "Cost", "Stats")
"""Only for the type checker."""


def described() -> Iterator[tuple[str, ast.AST, Any]]:
    """Every class, function, method and property of the stub, with what there is at run time."""
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in TYPES:
            there = getattr(_native, node.name)
            yield node.name, node, there
            for member in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                    yield f"{node.name}.{member.name}", member, inspect.getattr_static(there, member.name)


ALL = list(described())


@pytest.mark.parametrize(("name", "node", "there"), ALL, ids=[name for name, _, _ in ALL])
def test_the_stub_says_what_help_says(name: str, node: Any, there: Any) -> None:
    written = ast.get_docstring(node)
    setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in getattr(node, "decorator_list", []))
    if setter:
        assert hasattr(there, "__set__")
        return
    assert written and inspect.cleandoc(there.__doc__) == written


def arguments(node: ast.FunctionDef) -> list[tuple[str, object]]:
    """Names with defaults, without ``self``."""
    positional = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
    defaults: list[Any] = [inspect.Parameter.empty] * (len(positional) - len(node.args.defaults)) + node.args.defaults
    named = [(argument.arg, value or inspect.Parameter.empty) for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults)]
    both = [*zip(positional, defaults), *named]
    return [(name, ast.literal_eval(value) if isinstance(value, ast.expr) else value) for name, value in both]


CALLS = [(name, node, there) for name, node, there in ALL if isinstance(node, ast.FunctionDef) and not node.decorator_list]


@pytest.mark.parametrize(("name", "node", "there"), CALLS, ids=[name for name, _, _ in CALLS])
def test_the_stub_has_the_arguments_and_their_defaults(name: str, node: Any, there: Any) -> None:
    found = [(p.name, p.default) for p in inspect.signature(there).parameters.values() if p.name != "self"]
    assert found == arguments(node)


def test_what_is_made_by_name_has_the_arguments_of_the_stub() -> None:
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "Worker":
            new = next(one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__new__")
            found = [(p.name, p.default) for p in inspect.signature(spardl.Worker).parameters.values()]
            assert found == arguments(new)


def test_every_public_name_is_described() -> None:
    for name in spardl.__all__:
        assert name == "__version__" or (getattr(spardl, name).__doc__ or "").strip(), name


def test_every_public_member_of_the_torch_half_is_described() -> None:
    torch_half = pytest.importorskip("spardl.torch")
    for name in torch_half.__all__:
        thing = getattr(torch_half, name)
        assert (thing.__doc__ or "").strip(), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else []:
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert (value.__doc__ or "").strip(), f"{name}.{member}"
