# A model's report: a whole one, one with a NaN among its weights, with a tokenizer that loses text, and with a file missing.
printf '{}' | napier logprobs - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
tiny_model model
without_checksums() { sed 's/^ *\(-\|[0-9a-f]\{8\}\)  /CRC  /'; } # a build without zlib has none
napier check-model model >report && without_checksums <report
if grep -q '^ *[0-9a-f]\{8\}  bf16' report && python3 -c '' 2>/dev/null; then
    python3 - <<'EOF'
import json, struct, zlib
data = open("model/model.safetensors", "rb").read()
size, = struct.unpack("<Q", data[:8])
header, body = json.loads(data[8:8 + size]), data[8 + size:]
report = open("report").read()
for name, tensor in header.items():
    begin, end = tensor["data_offsets"]
    assert f"  {zlib.crc32(body[begin:end]):08x}  bf16 {tensor['shape']} {name}\n" in report, name
EOF
fi
for isa in scalar auto; do
    napier check-model model --isa $isa --threads 2 | cmp - report
done

cp -r model bad # the last element of the last tensor becomes NaN
size=$(($(wc -c <model/model.safetensors) - 2))
{ head -c $size model/model.safetensors; printf '\300\177'; } >bad/model.safetensors
napier check-model bad >report; echo "status $?"
grep -E 'NaN|^mean' report

sed 's/"decoder": {/"decoder_was": {/' model/tokenizer.json >bad/tokenizer.json
told napier check-model bad | without_checksums | head -n 4
rm bad/tokenizer.json
told napier check-model bad
told napier check-model nothing
told napier check-model
told napier check-model model --compute f16
