# The functions that the cases share. Sourced by run.sh.

# Runs a command. A failure is printed as a line and does not end the case. `told` also prints the command on both
# streams.
run() {
    "$@"
    _status=$?
    [ $_status -eq 0 ] || echo "[exit $_status]"
}
# Does the same for a command line, whose standard output may be redirected.
run_line() { run sh -c "$1"; }
told() {
    echo "\$ $*"
    echo "\$ $*" >&2
    run "$@"
}

skip() {
    echo "$*"
    exit 77
}

# limit_or_skip KB limits the address space of the case. Under a sanitizer or an emulator the program cannot start with
# such a limit, so the case is skipped.
limit_or_skip() {
    (ulimit -v "$1" && napier --version && napier info -j 1) >/dev/null 2>&1 || skip "the program does not start in $1 KB"
}

# npy MAJOR DICT writes the start of an .npy file to standard output; printf writes the elements after it.
npy() {
    _size=$((${#2} + 1))
    _start=$([ "$1" -eq 1 ] && echo 10 || echo 12)
    while [ $(((_start + _size) % 16)) -ne 0 ]; do _size=$((_size + 1)); done
    _length=$(printf '\\%03o\\%03o' $((_size % 256)) $((_size / 256)))
    [ "$1" -eq 1 ] || _length=$_length'\000\000'
    printf '\223NUMPY\00'"$1"'\000'"$_length"
    printf '%-*s\n' $((_size - 1)) "$2"
}

# array DESCR SHAPE [BYTES] writes an .npy file in C order; BYTES is a format of printf.
array() {
    npy 1 "{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
    printf "${3:-}"
}
fortran_array() {
    npy 1 "{'descr': '$1', 'fortran_order': True, 'shape': $2, }"
    printf "${3:-}"
}

# Prints the header of an .npy file as text, and its elements in hexadecimal.
show() {
    dd if="$1" bs=1 skip=10 count=118 2>/dev/null | sed 's/ *$//'
    tail -c +129 "$1" | od -An -v -tx1 | sed 's/^ //'
}

# 1, 2, 3 in some types.
f4_123='\0\0\200\077\0\0\0\100\0\0\100\100'
f8_123='\0\0\0\0\0\0\360\077\0\0\0\0\0\0\0\100\0\0\0\0\0\0\010\100'

# make_archives runs a Python script from standard input. Its archive(NAME, MEMBER=CONTENT, ...) writes a sparse matrix as
# SciPy does, with some members changed (None: left out); npy(DESCR, SHAPE, BYTES) makes a member.
make_archives() {
    command -v python3 >/dev/null || skip "no python3 to make archives with"
    {
        cat <<'END'
import struct, sys, zipfile

def npy(descr, shape, elements):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + elements

def archive(name, packed=zipfile.ZIP_DEFLATED, **changed):
    # Point i is 1 in columns i % 5 and 5 + i % 3; every second row names the later column first.
    rows = 40
    columns = [c for i in range(rows) for c in ((i % 5, 5 + i % 3) if i % 2 else (5 + i % 3, i % 5))]
    members = {
        "indices": npy("<i4", (80,), struct.pack("<80i", *columns)),
        "indptr": npy("<i4", (41,), struct.pack("<41i", *range(0, 82, 2))),
        "format": npy("|S3", (), b"csr"),
        "shape": npy("<i8", (2,), struct.pack("<2q", rows, 8)),
        "data": npy("<f8", (80,), struct.pack("<80d", *[1.0] * 80)),
    }
    members.update(changed)
    with zipfile.ZipFile(name, "w", packed) as z:
        for member, content in members.items():
            if content is not None:
                with z.open(zipfile.ZipInfo(member + ".npy"), "w", force_zip64=True) if packed == 0 else z.open(member + ".npy", "w") as f:
                    f.write(content)

END
        cat
    } >make.py
    python3 make.py || skip "python3 cannot make the archives"
}

# tiny_model DIR writes a random Qwen3 model of one layer in bf16 for the tokenizer of tests/support.
tiny_model() {
    mkdir -p "$1" && cp "$here/../support/tiny_tokenizer.json" "$1/tokenizer.json"
    cat >"$1/config.json" <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": 8,
 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 8,
 "vocab_size": 288, "rms_norm_eps": 1e-06, "rope_theta": 10000, "tie_word_embeddings": true, "attention_bias": false}
END
    # Numbers of either sign from 1/32 to 1/2; for norms 1 to 2.
    awk 'function tensor(name, rows, cols,    n) {
            n = rows * (cols > 0 ? cols : 1)
            header = header (header == "" ? "{" : ", ") "\"" name ".weight\": {\"dtype\": \"BF16\", \"shape\": [" \
                rows (cols > 0 ? ", " cols : "") "], \"data_offsets\": [" at ", " at + 2 * n "]}"
            at += 2 * n
            for (; n > 0; n--) {
                x = (x * 69069 + 12345) % 2147483648
                high = name ~ /norm/ ? 63 : int(x / 16777216) % 2 + 61 + 128 * (int(x / 33554432) % 2)
                low = name ~ /norm/ ? 128 + int(x / 65536) % 128 : int(x / 65536) % 256
                data = data sprintf("\\%03o\\%03o", low, high)
            }
        }
        BEGIN {
            x = 1
            at = 0
            layer = "model.layers.0."
            tensor("model.embed_tokens", 288, 8); tensor("model.norm", 8, 0)
            tensor(layer "input_layernorm", 8, 0); tensor(layer "post_attention_layernorm", 8, 0)
            tensor(layer "self_attn.q_proj", 8, 8); tensor(layer "self_attn.k_proj", 4, 8)
            tensor(layer "self_attn.v_proj", 4, 8); tensor(layer "self_attn.o_proj", 8, 8)
            tensor(layer "self_attn.q_norm", 4, 0); tensor(layer "self_attn.k_norm", 4, 0)
            tensor(layer "mlp.gate_proj", 8, 8); tensor(layer "mlp.up_proj", 8, 8); tensor(layer "mlp.down_proj", 8, 8)
            header = header "}"
            while (length(header) % 8 != 0) { header = header " " }
            printf "\\%03o\\%03o\\000\\000\\000\\000\\000\\000\n%s\n%s\n", length(header) % 256, int(length(header) / 256), \
                header, data
        }' >tiny.txt
    {
        printf "$(sed -n 1p tiny.txt)"
        sed -n 2p tiny.txt | tr -d '\n'
        printf "$(sed -n 3p tiny.txt)"
    } >"$1/model.safetensors"
    rm tiny.txt
}
