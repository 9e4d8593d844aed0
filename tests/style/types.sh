#!/bin/sh
# tests/style/types.sh FOLDER [PYTHON] - the types of the Python package: stubtest compares its stubs with what runs, mypy checks its
# functions, and mypy --strict and pyright check the examples and tests/style/types. FOLDER has an environment for the checkers, which is fetched once. PYTHON imports
# napier; its modules whose libraries (PyTorch, TRL, Dask, ...) it has not are not compared. The last line counts. Exit status 77: this
# machine cannot run it, and the last line says why.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1 python=${2:-${PYTHON:-python3}}
cannot() { echo "$1"; exit 77; }

mkdir -p "$folder" && cd "$folder" && folder=$PWD || exit 1
package=$("$python" -c 'import napier, os; print(os.path.dirname(os.path.abspath(napier.__file__)))') ||
    cannot "no napier that $python can import (PYTHONPATH)"
if [ ! -f venv/ready ]; then # the stamp is written last, so a broken fetch is repeated
    rm -rf venv
    "$python" -m venv venv || cannot "no $python -m venv"
    venv/bin/python -m pip install --quiet --disable-pip-version-check mypy basedpyright || cannot "pip cannot fetch mypy and basedpyright"
    "$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' >venv/others
    mv venv/others "$(venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/others.pth"
    touch venv/ready
fi
mkdir -p path && ln -sfn "$package" path/napier # mypy does not take a folder of installed packages
export MYPYPATH="$folder/path" PYTHONPATH="$folder/path" PYTHONDONTWRITEBYTECODE=1
passed=0 failed=0

check() { # what, command
    what=$1
    shift
    if "$@" >log 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  $what"
        tail -n 40 log
    fi
}

# The modules that have a stub and can be imported here.
venv/bin/python - path/napier >stubs.txt <<'EOF'
import importlib, pathlib, sys
place = pathlib.Path(sys.argv[1])
for path in sorted(place.rglob("*.pyi")):
    name = ".".join(["napier", *path.relative_to(place).with_suffix("").parts])
    try:
        importlib.import_module(name)
        print(name)
    except ImportError as error:
        print(f"skip  stubtest: {name}: {error}", file=sys.stderr)
EOF
# shellcheck disable=SC2046 # a list of modules
check "stubtest" venv/bin/python -m mypy.stubtest $(cat stubs.txt) --concise --ignore-unused-allowlist \
    --allowlist "$root/tests/style/stubtest.txt" --mypy-config-file "$root/pyproject.toml"
MYPYPATH=$MYPYPATH:$root/examples check "mypy --strict" venv/bin/mypy --strict --config-file "$root/pyproject.toml" --cache-dir cache \
    "$root"/examples/*.py "$root"/tests/style/types/*.py
check "mypy of the package" venv/bin/mypy --config-file "$root/pyproject.toml" --cache-dir cache.package path/napier/_*.py path/napier/_*/*.py
cat >pyright.json <<EOF
{"include": ["$root/examples", "$root/tests/style/types"], "extraPaths": ["$folder/path", "$root/examples"], "typeCheckingMode": "standard",
 "reportUnnecessaryTypeIgnoreComment": "error", "enableTypeIgnoreComments": false, "reportMissingImports": false,
 "reportMissingModuleSource": false, "reportPrivateImportUsage": false, "pythonVersion": "3.11"}
EOF
check "pyright" venv/bin/basedpyright -p pyright.json --pythonpath venv/bin/python
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
