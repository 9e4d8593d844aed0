#!/bin/sh
# tests/style/types.sh FOLDER [PYTHON] - the types of the Python package: stubtest compares its stubs with what runs, and mypy --strict
# and pyright check the examples and tests/style/types. FOLDER has an environment for the checkers, fetched once. PYTHON is one with
# what napier's modules import (PyTorch, TRL, Dask, ...); modules that it cannot import are not compared. PYTHONPATH names the folder of a
# napier that is built. The last line counts. Exit status 77: this machine cannot run it, and the last line says why.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1 python=${2:-${PYTHON:-python3}}
cannot() { echo "$1"; exit 77; }

"$python" -c 'import napier' 2>/dev/null || cannot "no napier that $python can import (PYTHONPATH)"
mkdir -p "$folder" || exit 1
if [ ! -f "$folder/venv/ready" ]; then # the stamp is written last, so a broken fetch is repeated
    rm -rf "${folder:?}/venv"
    "$python" -m venv "$folder/venv" || cannot "no $python -m venv"
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check mypy basedpyright numpy ||
        cannot "pip cannot fetch mypy and basedpyright"
    "$python" -c 'import site, sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' \
        >"$("$folder/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/others.pth"
    touch "$folder/venv/ready"
fi
checker=$folder/venv/bin
napier=$("$checker/python" -c 'import napier, os; print(os.path.dirname(os.path.dirname(os.path.abspath(napier.__file__))))') || exit 1
export MYPYPATH=$napier PYTHONPATH=$napier
passed=0 failed=0

counted() { # what, command
    what=$1
    shift
    if "$@" >"$folder/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL  $what"
        tail -n 40 "$folder/log"
    fi
}

# Modules whose libraries are not there.
cp "$root/tests/style/stubtest.txt" "$folder/allowed.txt"
"$checker/python" - >>"$folder/allowed.txt" <<'EOF'
import importlib
for name, also in (("torch", "hf|torch"), ("transformers", ""), ("trl", "_lm\\.grpo_trainer"), ("lm_eval", ""), ("dask", ""), ("jinja2", "_lm\\.sandbox")):
    try:
        importlib.import_module(f"napier.{name}" if not also.startswith("_") and name in ("torch", "dask", "lm_eval") else name)
    except ImportError:
        print(rf"napier\.({also or name})(\..*)?")
        if name == "torch":
            print(r"napier\.(trl|_torch|_lm\.grpo_trainer)(\..*)?")
EOF
counted "stubtest" "$checker/python" -m mypy.stubtest napier --concise --ignore-unused-allowlist --allowlist "$folder/allowed.txt" \
    --mypy-config-file "$root/pyproject.toml"
cd "$root/examples" || exit 1
counted "mypy --strict" "$checker/mypy" --strict --config-file "$root/pyproject.toml" --cache-dir "$folder/cache" ./*.py \
    "$root"/tests/style/types/*.py
cat >"$folder/pyright.json" <<EOF
{"include": ["$root/examples", "$root/tests/style/types"], "extraPaths": ["$napier", "$root/examples"], "typeCheckingMode": "standard",
 "reportUnnecessaryTypeIgnoreComment": "error", "enableTypeIgnoreComments": false, "reportMissingImports": false,
 "reportMissingModuleSource": false, "reportPrivateImportUsage": false, "pythonVersion": "3.11"}
EOF
counted "pyright" "$checker/basedpyright" -p "$folder/pyright.json" --pythonpath "$checker/python"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
