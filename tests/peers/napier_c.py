"""Napier's C API by ctypes, read from its headers: no declaration is written twice.

    from napier_c import napier
    params = napier.make("napier_umap_params", negative_sample_rate=3)      a struct with its defaults
    napier.call("napier_umap_segments", edges, count, n, starts, counts)    the context comes first, by itself
    napier.call("napier_softmax", logits, probs, options)                   an array stands for a pointer or for a view

Arrays are NumPy's; where the C call takes a matrix or a vector, a view of the array is passed, with its strides. A status that
is not 0 raises NapierError with the library's text.
"""
import ctypes
import glob
import os
import re

import numpy as np

from support import ROOT

BUILD = os.environ.get("NAPIER_PEERS_BUILD", os.path.join(ROOT, "build", "peers"))

SCALARS = {
    "int": ctypes.c_int, "char": ctypes.c_char, "float": ctypes.c_float, "double": ctypes.c_double,
    "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
}
DTYPES = {"float32": 1, "float16": 2, "uint16": 3, "float64": 4}  # uint16 holds bfloat16
INDEX_TYPES = {"int32": 1, "int64": 2}


class NapierError(Exception):
    """A status that is not 0."""

    def __init__(self, status, text):
        super().__init__(f"status {status}: {text}")


def header_text():
    text = "".join(open(path, encoding="utf-8").read() for path in glob.glob(ROOT + "/include/napier/*.h"))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


class Headers:
    """What the headers declare: structs, enums and their values, functions."""

    def __init__(self):
        self.text = header_text()
        self.structs, self.constants = {}, {}
        self.enums = set(re.findall(r"typedef enum (\w+)", self.text))
        self.callbacks = set(re.findall(r"typedef int (\w+)\(", self.text))
        for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", self.text, flags=re.S):
            self._read_enum(body)
        bodies = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", self.text, flags=re.S)
        self.bodies = dict(bodies)
        for name in self.bodies:
            self.struct(name)
        self.functions = {
            name: (returned, [] if arguments.strip() == "void" else arguments.split(","))
            for returned, name, arguments in re.findall(
                r"NAPIER_API\s+([\w ]+?[ *]+)(\w+)\(([^()]*)\);", self.text)
        }

    def _read_enum(self, body):
        value = -1
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, _, given = entry.partition("=")
            value = int(given, 0) if given.strip() else value + 1
            self.constants[name.strip()] = value

    def type_of(self, declaration):
        """The ctypes type of "const float *distances" or "napier_metric metric"."""
        if "*" in declaration:
            return ctypes.c_void_p
        word = re.sub(r"\bconst\b", "", declaration).split()[0]
        if word in SCALARS:
            return SCALARS[word]
        if word in self.enums:
            return ctypes.c_int
        return self.struct(word)

    def struct(self, name):
        if name not in self.structs:
            fields = []
            for line in filter(None, (part.strip() for part in self.bodies[name].split(";"))):
                if "(" in line:  # a function pointer
                    fields.append((re.search(r"\(\*(\w+)\)", line).group(1), ctypes.c_void_p))
                    continue
                kind = line.split()[0] if not line.startswith("const") else line.split()[1]
                for part in line.split(kind, 1)[1].split(","):
                    pointer = "*" if "*" in part else ""
                    fields.append((part.replace("*", "").strip(), self.type_of(kind + pointer + " x")))
            self.structs[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        return self.structs[name]


class Napier:
    def __init__(self):
        self.headers = Headers()
        self.library = ctypes.CDLL(os.path.join(BUILD, "library", "libnapier.so"))
        self.defaults = ctypes.CDLL(os.path.join(BUILD, "defaults.so"))
        self.library.napier_last_error.restype = ctypes.c_char_p
        self.context = ctypes.c_void_p()
        if self.library.napier_context_create(ctypes.byref(self.context), None) != 0:
            raise NapierError(2, "no context")

    def __getattr__(self, name):
        """Constants: napier.NAPIER_METRIC_COSINE."""
        try:
            return self.headers.constants[name]
        except KeyError:
            raise AttributeError(name) from None

    def make(self, name, **fields):
        """A struct with its defaults (NAPIER_X_INIT), and then these fields. Arrays are kept alive with it."""
        kind = self.headers.struct(name)
        result = kind.from_buffer_copy(kind.in_dll(self.defaults, name + "_init")) if self._has_default(name) else kind()
        if hasattr(result, "struct_size") and self._has_default(name) and result.struct_size != ctypes.sizeof(kind):
            raise AssertionError(f"{name}: {ctypes.sizeof(kind)} bytes here, {result.struct_size} in the library")
        result.alive = []
        for field, value in fields.items():
            if field not in dict(kind._fields_):
                raise AttributeError(f"{name} has no field {field}")
            wanted = dict(kind._fields_)[field]
            if isinstance(value, np.ndarray):
                result.alive.append(value)
                value = value.ctypes.data if wanted is ctypes.c_void_p else self.view(wanted, value)
            elif isinstance(value, ctypes.Structure):
                result.alive.append(value)
                value = ctypes.addressof(value) if wanted is ctypes.c_void_p else value
            setattr(result, field, value)
        return result

    def _has_default(self, name):
        return hasattr(self.defaults, name + "_init")

    def view(self, kind, array):
        """An array as napier_indices, a napier_matrix or a napier_vector; a vector where a matrix is wanted is one column."""
        if kind is self.headers.struct("napier_indices"):
            return kind(array.ctypes.data, array.size, INDEX_TYPES[array.dtype.name])
        if kind is self.headers.struct("napier_vector") or kind is self.headers.struct("napier_const_vector"):
            return kind(array.ctypes.data, array.size, array.strides[0] // array.itemsize, DTYPES[array.dtype.name])
        array = array.reshape(-1, 1) if array.ndim == 1 else array
        rows, cols = array.shape
        strides = [stride // array.itemsize for stride in array.strides]
        return kind(array.ctypes.data, rows, cols, *strides, DTYPES[array.dtype.name])

    def argument(self, kind, value, keep):
        """A Python value as the C argument `kind`."""
        if isinstance(value, np.ndarray):
            keep.append(value)
            if kind is ctypes.c_void_p:
                if not value.flags.c_contiguous:
                    raise ValueError("a pointer to an array that is not contiguous")
                return ctypes.c_void_p(value.ctypes.data)
            return self.view(kind, value)
        if isinstance(value, ctypes.Structure) and kind is ctypes.c_void_p:
            return ctypes.byref(value)
        if isinstance(value, str):
            return ctypes.c_char_p(value.encode())
        if value is None and issubclass(kind, ctypes.Structure):
            return kind()  # an absent view
        if value is None or isinstance(value, (ctypes._SimpleCData, ctypes.Structure)) or hasattr(value, "_obj"):
            return value
        return kind(value)

    def call(self, name, *values):
        """Calls `name` with the context and these values; what it returns other than a status is returned."""
        returned, arguments = self.headers.functions[name]
        kinds = [self.headers.type_of(argument) for argument in arguments]
        if arguments and "napier_context *" in arguments[0]:
            values = (self.context,) + values
        if len(values) != len(kinds):
            raise TypeError(f"{name} takes {len(kinds)} arguments, not {len(values)}")
        keep = []
        function = getattr(self.library, name)
        function.restype = None if returned.strip() == "void" else self.headers.type_of(returned)
        result = function(*(self.argument(kind, value, keep) for kind, value in zip(kinds, values)))
        if returned.strip() != "napier_status":
            return result
        if result != 0:
            raise NapierError(result, self.library.napier_last_error(self.context).decode())
        return None

    def create(self, name, *values):
        """A call whose last argument is `T **out`: the pointer it makes."""
        out = ctypes.c_void_p()
        self.call(name, *values, ctypes.byref(out))
        return out


napier = Napier()
