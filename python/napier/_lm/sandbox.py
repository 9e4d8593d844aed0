"""The environment of jinja2 in which chat templates run. A template comes from a stranger. jinja2's sandbox keeps it from objects and
attributes that are none of its business; what is here bounds its work, so that no template runs or grows without end."""
import functools
import json
import re
import threading
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

STEPS = 2**21  # rounds of loops
_CALL = 16  # as many rounds as the call of a macro takes
CHARACTERS = 2**28  # of all texts that a template makes, and elements of lists
_LARGEST = 2**20  # of a width or a count
_WIDE = re.compile(r"[0-9]{7}|%[^a-zA-Z%]*\*")  # a format with such a width


def _size(value, known):
    """The length of a value's text, or nearly; a list that stands in several places counts in each."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if not isinstance(value, (list, tuple, set, dict)):
        return 8
    if id(value) not in known:
        both = (*value, *value.values()) if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(2 + _size(x, known) for x in both)
    return known[id(value)]


class _Generation(Extension):
    """{% generation %} marks what the assistant says, and writes nothing."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True)).set_lineno(line)


class Environment(ImmutableSandboxedEnvironment):
    """Counts the work of a rendering, in each thread for itself."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self):
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=self.written)
        self._left = threading.local()
        self.globals.pop("lipsum")
        self.globals.update(raise_exception=_raise_exception, strftime_now=lambda form: datetime.now().strftime(form),
                            namespace=_Namespace)
        self.filters["tojson"] = _tojson
        self.filters = {name: self._bounded(name, filter) for name, filter in self.filters.items()}
        self.filters.update(step=self.step, concatenated=self.concatenated)

    def start(self):
        """Begins a rendering."""
        self._left.steps, self._left.characters = STEPS, CHARACTERS

    def step(self, _, cost):
        self._left.steps -= cost
        if self._left.steps < 0:
            raise SecurityError(f"it runs for more than {STEPS} rounds of loops")

    def spend(self, characters):
        left = getattr(self._left, "characters", CHARACTERS)  # constants are computed before a rendering begins
        if characters > left:
            raise SecurityError(f"it makes more than {CHARACTERS} characters of text")
        self._left.characters = left - characters

    def spend_on(self, *values):
        self.spend(sum(_size(value, {}) for value in values))

    def written(self, value):
        self.spend_on(value)
        return value

    def concatenated(self, *values):
        self.spend_on(*values)
        return "".join(map(str, values))

    # ---- What the template's source becomes -----------------------------------------------------------------------------------

    def _parse(self, source, name, filename):
        tree = super()._parse(source, name, filename)
        for node in [*tree.find_all((nodes.For, nodes.Macro))]:
            cost = nodes.Const(1 if isinstance(node, nodes.For) else _CALL)
            node.body.insert(0, nodes.ExprStmt(self._filtered("step", [nodes.EnvironmentAttribute("sandboxed"), cost], node)))
        return _replaced(tree, nodes.Concat, lambda node: self._filtered("concatenated", node.nodes, node))

    def _filtered(self, name, values, at):
        """A filter is called without a detour through the sandbox, which takes ten times as long."""
        made = nodes.Filter(values[0], name, values[1:], [], None, None)
        return made.set_lineno(at.lineno).set_environment(self)

    # ---- Operators, methods and filters ---------------------------------------------------------------------------------------

    def call_binop(self, context, operator, left, right):
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            bits = [x.bit_length() if isinstance(x, int) else 64 for x in (left, right)]
            if operator == "**" and bits[0] * abs(right) > _LARGEST or operator == "*" and sum(bits) > _LARGEST:
                raise SecurityError(f"the numbers of {operator} are too large")
        elif operator == "*":
            times = [x for x in (left, right) if isinstance(x, int)]
            self.spend(max(1, *times, 1) * max(_size(x, {}) for x in (left, right) if not isinstance(x, int)))
        elif operator == "%" and isinstance(left, str):
            self._check_format(left, "%", right)
        elif isinstance(left, (str, list, tuple)):
            self.spend_on(left, right)
        return super().call_binop(context, operator, left, right)

    def _check_format(self, text, mark, *arguments):
        if _WIDE.search(text) or any(isinstance(x, int) and abs(x) > _LARGEST and mark == "{" for x in arguments):
            raise SecurityError("the width of a format is too large")
        self.spend(len(text) + text.count(mark) * sum(_size(x, {}) for x in arguments))

    def _check_text(self, name, text, arguments):
        """A method of a text, or the filter of that name."""
        if name in ("format", "format_map"):
            return self._check_format(text, "{", *arguments)
        if name in ("translate", "maketrans"):
            raise SecurityError(f"{name} is not for chat templates")
        if name == "join":
            each = arguments[0] if arguments and isinstance(arguments[0], (str, list, tuple, dict, set)) else ()
            return self.spend(len(text) * len(each) + _size(each, {}))
        if name == "replace" and len(arguments) >= 2:
            old, new = (x if isinstance(x, str) else "" for x in arguments[:2])
            return self.spend(len(text) + (text.count(old) if old else len(text) + 1) * len(new))
        self._check_numbers(arguments)
        return self.spend(len(text))

    def _check_numbers(self, arguments):
        if any(isinstance(x, int) and abs(x) > _LARGEST for x in arguments):
            raise SecurityError("the number of an argument is too large")

    def call(__self, __context, __obj, *args, **kwargs):  # noqa: N805: names of arguments are the template's
        method = getattr(__obj, "__wrapped__", __obj)
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            __self._check_text(method.__name__, text, (*args, *kwargs.values()))
        return super().call(__context, __obj, *args, **kwargs)

    def _bounded(self, name, filter):
        """The filter, which first pays for the text that it may make."""
        first = 1 if hasattr(filter, "jinja_pass_arg") else 0

        @functools.wraps(filter)
        def bounded(*args, **kwargs):
            value, *rest = *args[first:], *kwargs.values()
            if name == "join":
                value = list(value)
                args = (*args[:first], value, *args[first + 1:])
                self._check_text("join", str(rest[0]) if rest else "", [value])
            elif name == "format":
                self._check_format(str(value), "%", *rest)
            elif name == "replace":
                self._check_text("replace", str(value), rest)
            elif name == "sum" and not all(isinstance(x, (int, float, str, type(None))) for x in rest):
                raise SecurityError("sum is for numbers")
            else:
                self._check_numbers(rest)
                self.spend_on(value)
            return filter(*args, **kwargs)

        return bounded


class _Namespace(jinja2.utils.Namespace):
    """A template stores nothing under a name that begins with _."""

    def __init__(*arguments, **values):
        self, *rest = arguments
        for name in dict(*rest, **values):
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, *rest, **values)

    def __setitem__(self, name, value):
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a name of a namespace begins with _: {name!r}")


def _replaced(tree, kind, by):
    """The tree with every node of this kind, from the innermost on, replaced."""
    for name, value in tree.iter_fields():
        if isinstance(value, list):
            setattr(tree, name, [_replaced(x, kind, by) if isinstance(x, nodes.Node) else x for x in value])
        elif isinstance(value, nodes.Node):
            setattr(tree, name, _replaced(value, kind, by))
    return by(tree) if isinstance(tree, kind) else tree


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise jinja2.TemplateError(message)
