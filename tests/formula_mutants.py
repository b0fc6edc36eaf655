"""Modules with one planted error, made in memory: an operator, a sign or a number changed."""

import ast
import inspect
import types

_SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}


def sites(module):
    """Where `mutant` can plant an error: function, index, line, and whether it is an operator."""
    found = []
    for function in ast.parse(inspect.getsource(module)).body:
        if isinstance(function, ast.FunctionDef):
            for index, node in enumerate(ast.walk(function)):
                if _change(node, dry=True):
                    operator = isinstance(node, ast.BinOp)
                    found.append((function.name, index, node.lineno, operator))
    return found


def mutant(module, name, index):
    """The module with the node of that index in a function changed."""
    tree = ast.parse(inspect.getsource(module))
    (function,) = (f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == name)
    node = list(ast.walk(function))[index]
    before = ast.unparse(node)
    _change(node)
    return _load(module, ast.unparse(tree)), f"{before} became {ast.unparse(node)}"


def reloaded(module):
    """The module as it is, made by the same route."""
    return _load(module, ast.unparse(ast.parse(inspect.getsource(module))))


def _load(module, source):
    made = types.ModuleType(module.__name__)
    made.__package__ = module.__package__
    exec(compile(source, module.__name__, "exec"), made.__dict__)
    return made


def with_names(module, other):
    """The module's namespace with the public names of another one in place of its own."""
    made = types.ModuleType(module.__name__)
    made.__dict__.update(module.__dict__)
    made.__dict__.update({k: v for k, v in vars(other).items() if not k.startswith("_")})
    return made


def _change(node, *, dry=False):
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        if not dry:
            node.op = _SWAPS[type(node.op)]()
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        if not dry:
            node.right = ast.BinOp(node.right, ast.Mult(), ast.Constant(2))
        return True
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        if not dry:
            node.value = node.value + 1
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if not dry:
            node.op = ast.UAdd()
        return True
    return False
