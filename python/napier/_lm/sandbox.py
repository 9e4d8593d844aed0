"""The environment of jinja2 in which chat templates run. A template comes from a stranger. jinja2's sandbox keeps it from objects
and attributes that are none of its business; what is here bounds its work, so that no template runs or grows without end.

A rendering has a budget of rounds of loops, one of characters and one of time. The parser's tree is changed so that loops, texts,
lists, slices and comparisons pay; operators, filters, tests and methods pay before they make something large."""

import functools
import json
import re
import string
import threading
import time
from collections.abc import ItemsView, KeysView, ValuesView
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_multi_attrgetter
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

SOURCE = 2**16  # characters of a template: compiling four times as many can take 564 MB; published ones have some 20,000
STEPS = 2**21  # rounds of loops
CHARACTERS = 2**24  # of all texts that a template makes or reads; an element of a list counts as 8
EACH = 256  # and as many more for each character of the conversation
SECONDS = 10  # of the thread's own time: a backstop, looked at between operations
_CALL = 16  # as many rounds as the call of a macro takes
_BITS = 4096  # of an integer
_WIDEST = 1000  # of a width, a precision, or a number of digits
_PLACE = 8  # characters that a place in a list counts as, which is its bytes
_PERCENT = re.compile(r"%(?:\([^()]*\))?([-#0 +.\d*]*)(.?)", re.DOTALL)
_COLLECTIONS = (list, tuple, set, frozenset, dict, KeysView, ValuesView, ItemsView)
# Filters that make long texts of short ones, or take a time that is the square of the text's length.
_REFUSED_FILTERS = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_REFUSED_METHODS = ("translate", "maketrans", "encode", "to_bytes", "striptags", "unescape")
_CONSTANT_FILTERS = ("count", "d", "default", "first", "last", "length")  # they look at no element but one
_SHALLOW_FILTERS = ("attr", "batch", "items", "list", "map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice")
_ATTRIBUTES = {"groupby": 0, "join": 1, "max": 1, "min": 1, "sort": 2, "sum": 0, "unique": 1}  # the place of the argument
_COMPARING_TESTS = {*"== eq equalto != ne > gt greaterthan >= ge < lt lessthan <= le in lower upper escaped".split()}


def _size(value, known):
    """The length of a value's text, or nearly; a list that stands in several places counts in each."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return value.bit_length() // 3 + 1
    if isinstance(value, range):
        return _PLACE * (len(value) + 2)
    if not isinstance(value, _COLLECTIONS):
        if value is None or isinstance(value, (float, jinja2.Undefined)) or _is_iterator(value):
            return 2 * _PLACE
        raise SecurityError(f"a {type(value).__name__} is no text")
    if id(value) not in known:
        both = (*value, *value.values()) if isinstance(value, dict) else value
        known[id(value)] = 2 * _PLACE + sum(_PLACE + _size(x, known) for x in both)
    return known[id(value)]


def _shallow(value):
    """The size of a value without that of its elements."""
    if isinstance(value, str):
        return len(value)
    return _PLACE * (2 + (len(value) if isinstance(value, (*_COLLECTIONS, range)) else 0))


def _is_iterator(value):
    """Is it a filter's result that is computed when it is read? A loop is read by its own rounds."""
    return not isinstance(value, (LoopContext, jinja2.utils.Namespace, jinja2.Undefined)) and hasattr(value, "__next__")


def _known(value):
    """The value, or the list of what an iterator gives, whose size is known."""
    return list(value) if _is_iterator(value) else value


def _width(value):
    """A width, which may be a text instead."""
    width = len(value) if isinstance(value, str) else abs(value) if isinstance(value, int) else 0
    if width > _WIDEST:
        raise SecurityError(f"the width {width} is more than {_WIDEST}")
    return width


def _widths(spec):
    if re.search(r"[{}*]", spec):
        raise SecurityError("a format takes its width from another value")
    return sum(_width(int(number[:9])) for number in re.findall(r"\d+", spec))


def _format_cost(text, mark, arguments):
    """The characters that a format may make: of str.format if the mark is {, else of %."""
    if mark == "{":
        specs = [spec or "" for _, _, spec, _ in string.Formatter().parse(text)]
    else:
        specs = [found[1] for found in _PERCENT.finditer(text)]
        if any(found[2] in "()" and found[2] for found in _PERCENT.finditer(text)):
            raise SecurityError("a name in a format has parentheses")
    return len(text) + sum(map(_widths, specs)) + len(specs) * sum(_size(x, {}) for x in arguments)


class _Generation(Extension):
    """{% generation %} marks what the assistant says, and writes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True)).set_lineno(line)


class Environment(ImmutableSandboxedEnvironment):
    """Counts the work of a rendering, in each thread for itself."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    filters: dict
    tests: dict

    def __init__(self):
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=self.written)
        self._left = threading.local()
        self.globals.pop("lipsum")
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now, namespace=_Namespace)
        self.filters["tojson"] = self.tojson
        self.filters = {name: self._bounded(name, filter) for name, filter in self.filters.items() if name not in _REFUSED_FILTERS}
        self.tests = {name: self._paid(test) if name in _COMPARING_TESTS else test for name, test in self.tests.items()}
        # No filter with such a name can be written. map("step!") finds it and gains nothing: it only spends.
        self.filters.update(
            {"step!": self.step, "call!": self.call_step, "made!": self.made, "weighed!": self.written, "concatenated!": self.concatenated}
        )
        self.start()  # constants are computed while the template is compiled

    def start(self, *conversation):
        """Begins a rendering."""
        self._left.steps, self._left.end = STEPS, time.thread_time() + SECONDS
        self._left.most = self._left.characters = CHARACTERS + EACH * sum(_size(value, {}) for value in conversation)

    @jinja2.pass_context
    def step(self, _, __):
        return self._step(1)

    @jinja2.pass_context
    def call_step(self, _, __):
        return self._step(_CALL)

    def _step(self, cost):
        left = self._left
        left.steps -= cost
        if left.steps < 0:
            raise SecurityError(f"it runs for more than {STEPS} rounds of loops")
        if left.steps % 64 < cost and time.thread_time() > left.end:
            raise SecurityError(f"it runs for more than {SECONDS} s")
        return True

    def spend(self, characters):
        left = self._left
        if characters > left.characters:
            raise SecurityError(f"it makes more than {left.most} characters of text")
        left.characters -= max(characters, 1)
        if time.thread_time() > left.end:
            raise SecurityError(f"it runs for more than {SECONDS} s")

    def spend_on(self, *values):
        known: dict = {}
        self.spend(sum(_size(value, known) for value in values))

    @jinja2.pass_context
    def written(self, _, value):
        self.spend_on(value)
        return value

    @jinja2.pass_context
    def made(self, _, value):
        self.spend(_shallow(value))
        return value

    @jinja2.pass_context
    def concatenated(self, _, *values):
        self.spend_on(*values)
        return "".join(map(str, values))

    # ---- What the template's source becomes -----------------------------------------------------------------------------------

    def _parse(self, source, name, filename):
        if len(source) > SOURCE:
            raise SecurityError(f"it has {len(source)} characters, more than {SOURCE}")
        tree = super()._parse(source, name, filename)
        for node in [*tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block))]:
            self._count(node)
        return _replaced(tree, self._replacement)

    def _count(self, node):
        """A loop counts its rounds, also those that its `if` passes over; a macro or block its calls."""
        step = self._filtered("step!" if isinstance(node, nodes.For) else "call!", [nodes.Const(0)], node)
        if isinstance(node, nodes.For) and node.test is not None:
            node.test = nodes.And(step, node.test).set_lineno(node.lineno).set_environment(self)
        else:
            node.body.insert(0, nodes.ExprStmt(step).set_lineno(node.lineno))

    def _replacement(self, node):
        """The node that pays for what this one makes or reads."""
        if isinstance(node, nodes.Concat):
            return self._filtered("concatenated!", node.nodes, node)
        if isinstance(node, nodes.TemplateData):  # so that `written` pays for it
            return nodes.MarkSafeIfAutoescape(nodes.Const(node.data)).set_lineno(node.lineno).set_environment(self)
        if isinstance(node, nodes.Compare):
            for part in (node, *node.ops):
                part.expr = self._weighed(part.expr)
        if isinstance(node, nodes.Dict):
            for pair in node.items:
                pair.key = self._weighed(pair.key)
        slices = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        literal = isinstance(node, (nodes.List, nodes.Dict)) or isinstance(node, nodes.Tuple) and node.ctx == "load"
        return self._filtered("made!", [node], node) if slices or literal else node

    def _weighed(self, node):
        return node if isinstance(node, nodes.Const) else self._filtered("weighed!", [node], node)

    def _filtered(self, name, values, at):
        """A filter is called without a detour through the sandbox, which takes ten times as long."""
        made = nodes.Filter(values[0], name, values[1:], [], None, None)
        return made.set_lineno(at.lineno).set_environment(self)

    # ---- Operators, items and methods -----------------------------------------------------------------------------------------

    def call_binop(self, context, operator, left, right):
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            self.spend(1)
            bits = [x.bit_length() if isinstance(x, int) else 64 for x in (left, right)]
            if max(bits) > _BITS or operator == "**" and bits[0] * abs(right) > _BITS:
                raise SecurityError(f"the numbers of {operator} are too large")
        elif operator == "*":
            times = [x for x in (left, right) if isinstance(x, int)]
            self.spend(max(1, *times, 1) * max(_shallow(x) for x in (left, right) if not isinstance(x, int)))
        elif operator == "%" and isinstance(left, str):
            self.spend(_format_cost(left, "%", [right]))
        else:
            self.spend(_shallow(left) + _shallow(right))
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj, argument):
        if isinstance(obj, type):  # dict["x"] makes copies as dict does
            raise SecurityError(f"{obj.__name__} has no items")
        self.spend_on(argument)  # a tuple is hashed
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj, attr, value):
        """A method that is taken from its type instead of a value has no owner whose cost could be counted."""
        return not isinstance(obj, type) and super().is_safe_attribute(obj, attr, value)

    def call(__self, __context, __obj, *args, **kwargs):  # noqa: N805: names of arguments are the template's
        method = getattr(__obj, "__wrapped__", __obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, type) or owner is not None and getattr(method, "__name__", "") in _REFUSED_METHODS:
            raise SecurityError(f"{method.__name__} is not for chat templates")
        if __obj is dict or isinstance(owner, (str, int, float, LoopContext, range, *_COLLECTIONS)):
            args, kwargs = tuple(_known(x) for x in args), {name: _known(x) for name, x in kwargs.items()}
            named = [x for name, x in kwargs.items() if name not in ("_loop_vars", "_block_vars")]  # jinja2's own
            __self.spend(__self._cost(owner, method.__name__, (*args, *named)))
        else:  # the callee may keep the tuple and the dict of its arguments; namespace copies a dict
            __self.spend(_shallow(args) + 4 * _shallow(kwargs) + sum(4 * _shallow(x) for x in args if __obj is _Namespace))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(owner, str):
            __self.spend_on(result)
        return result

    def _cost(self, owner, name, arguments):
        """The characters that a method reads and may make."""
        if isinstance(owner, str):
            return self._cost_of_text(owner, name, arguments)
        if name == "get":  # it hashes the key, and gives the default
            arguments = arguments[:1]
        size = sum(_size(x, {}) for x in arguments)
        if isinstance(owner, (list, tuple, ValuesView, ItemsView)):  # index and count compare
            return size + (_shallow(owner) if name == "copy" else _size(owner, {}))
        return size + (_shallow(owner) if name in ("copy", "isdisjoint") else 0)

    def _cost_of_text(self, text, name, arguments):
        size = len(text) + sum(_size(x, {}) for x in arguments)
        if name in ("format", "format_map"):
            return _format_cost(text, "{", arguments)
        if name == "join":
            return size + len(text) * (len(arguments[0]) if arguments and hasattr(arguments[0], "__len__") else 0)
        if name == "replace" and len(arguments) >= 2:
            return self._cost_of_replace(text, *arguments[:2])
        if name in ("split", "rsplit", "splitlines"):
            mark = arguments[0] if arguments and isinstance(arguments[0], str) and arguments[0] else None
            return size + 2 * _PLACE * (len(text) // 2 if mark is None else text.count(mark))
        if name == "expandtabs":
            return size + text.count("\t") * max(8, *map(_width, arguments), 8)
        return size + sum(map(_width, arguments[:1])) if name in ("center", "ljust", "rjust", "zfill") else size

    def _cost_of_replace(self, value, old, new, count=None):
        text, old, new = str(value), str(old), str(new)
        return len(text) + len(old) + (text.count(old) if old else len(text) + 1) * len(new)

    # ---- Filters and tests ----------------------------------------------------------------------------------------------------

    def _paid(self, test):
        @functools.wraps(test)
        def paid(*values):
            self.spend_on(*values)
            return test(*values)

        return paid

    def _bounded(self, name, filter):
        """The filter, which first pays for the text that it may make."""
        first = 1 if hasattr(filter, "jinja_pass_arg") else 0

        @functools.wraps(filter)
        def bounded(*args, **kwargs):
            value = _known(args[first]) if name not in ("d", "default") else args[first]
            args = (*args[:first], value, *args[first + 1 :])
            self._pay(name, value, args[first + 1 :], kwargs)
            result = filter(*args, **kwargs)
            self.spend(len(result) if isinstance(result, str) else _shallow(result))
            return result

        return bounded

    def _pay(self, name, value, rest, named):
        if name in _CONSTANT_FILTERS:
            return
        self.spend_on(*rest, *named.values())
        if name in _SHALLOW_FILTERS:
            self.spend(_shallow(value) * (2 * _PLACE if isinstance(value, str) else 1))
        else:
            self.spend_on(value)
        special = getattr(self, f"_cost_of_{name}_filter", None)
        if special is not None:
            self.spend(special(value, *rest, **named))
        place = _ATTRIBUTES.get(name, len(rest))
        attribute = named.get("attribute", rest[place] if place < len(rest) else None)
        if attribute is not None and name not in _SHALLOW_FILTERS:  # it reads this of the elements
            _width(attribute)
            get = make_multi_attrgetter(self, attribute)
            self.spend(len(value).bit_length() * _size([get(x) for x in value], {}))

    def _cost_of_sorting(self, value, *_, **__):
        return _size(value, {}) * len(value).bit_length() if hasattr(value, "__len__") else 0

    _cost_of_sort_filter = _cost_of_dictsort_filter = _cost_of_groupby_filter = _cost_of_sorting
    _cost_of_replace_filter = _cost_of_replace

    def _cost_of_join_filter(self, value, d="", attribute=None):
        return len(str(d)) * len(value) if hasattr(value, "__len__") else 0

    def _cost_of_format_filter(self, value, *args, **kwargs):
        return _format_cost(str(value), "%", [*args, *kwargs.values()])

    def _cost_of_indent_filter(self, s, width=4, first=False, blank=False):
        return (len(str(s).splitlines()) + 1) * _width(width)

    def _cost_of_center_filter(self, value, width=80):
        return _width(width)

    def _cost_of_batch_filter(self, value, linecount, fill_with=None):
        return _PLACE * _width(linecount)

    def _cost_of_round_filter(self, value, precision=0, method="common"):
        return _width(precision)

    def _cost_of_int_filter(self, value, default=0, base=10):
        return _width(value) if isinstance(value, str) else 0

    def _cost_of_title_filter(self, value):
        """It makes a list of the words first."""
        return _PLACE * len(value) if isinstance(value, str) else 0

    _cost_of_slice_filter, _cost_of_wordcount_filter = _cost_of_batch_filter, _cost_of_title_filter

    def _cost_of_sum_filter(self, value, attribute=None, start=0):
        if not isinstance(start, (int, float)):
            raise SecurityError("sum is for numbers")
        return 0

    def tojson(self, value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        if indent is None and separators is None:
            return json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys)
        for text in (indent, *(separators or ())):
            _width(text)
        parts = []
        for part in json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys).iterencode(
            value
        ):
            self.spend(len(part))
            parts.append(part)
        return "".join(parts)


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


def _replaced(tree, by):
    """The tree with every node, from the innermost on, replaced."""
    for name, value in tree.iter_fields():
        if isinstance(value, list):
            setattr(tree, name, [_replaced(x, by) if isinstance(x, nodes.Node) else x for x in value])
        elif isinstance(value, nodes.Node):
            setattr(tree, name, _replaced(value, by))
    return by(tree)


def _strftime_now(form):
    _width(form)
    return datetime.now().strftime(form)


def _raise_exception(message):
    raise jinja2.TemplateError(message)
