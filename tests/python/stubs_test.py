"""The types that checkers read (__init__.pyi) and what is there: the same names and parameters, and a
docstring for each."""

import ast
import pathlib
import re
import unittest

import sennit

TREE = ast.parse(pathlib.Path(sennit.__file__).with_name("__init__.pyi").read_text())


def parameters(function):
    a = function.args
    return [x.arg for x in a.posonlyargs + a.args + a.kwonlyargs if x.arg != "self"]


def parameters_there(method):
    """Of pybind11's docstring: its first line is the signature."""
    inside = re.match(r"\w+\((.*)\) ->", method.__doc__.splitlines()[0]).group(1)
    return [name for name in re.findall(r"(?:^|, )(\w+)(?=:)", inside) if name != "self"]


class Stubs(unittest.TestCase):
    def check(self, owner, function):
        there = getattr(owner, function.name)
        if isinstance(there, property):
            self.assertTrue(there.__doc__, function.name)
            return
        self.assertEqual(parameters_there(there), parameters(function), function.name)
        self.assertGreater(len(there.__doc__.splitlines()), 1, f"{function.name} has no docstring")

    def test_functions_and_methods(self):
        for node in TREE.body:
            if isinstance(node, ast.FunctionDef):
                self.check(sennit, node)
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                there = getattr(sennit, node.name)
                self.assertTrue(there.__doc__, node.name)
                for member in node.body:
                    if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                        self.check(there, member)

    def test_nothing_is_missing_in_them(self):
        named = {node.name for node in TREE.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        named |= {node.target.id for node in TREE.body if isinstance(node, ast.AnnAssign)}
        self.assertEqual(set(sennit.__all__) - named, set())
        for node in TREE.body:
            if isinstance(node, ast.ClassDef) and node.name in ("Communicator", "Work"):
                methods = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
                there = {name for name in vars(getattr(sennit, node.name)) if not name.startswith("_")}
                self.assertEqual(there - methods, set())


if __name__ == "__main__":
    unittest.main()
