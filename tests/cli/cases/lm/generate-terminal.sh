# A prompt's text on a terminal: whole characters of UTF-8 at any moment, no control characters, and Ctrl-C ends it.
printf '{}' | napier generate - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
python3 -c 'import pty; pty.openpty()' 2>/dev/null || skip "no python3 that makes a pseudo-terminal"
tiny_model model
cat >watch.py <<'EOF'
import os, pty, re

def text_of(stop_after):
    """What a terminal shows; Ctrl-C after stop_after bytes."""
    tokens = "3000" if stop_after is None else "100000"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("napier", ["napier", "generate", "--model", "model", "--prompt", "hello", "--max-tokens", tokens,
                             "--temperature", "2", "--ignore-eos", "--seed", "1"])
    shown, pressed = b"", False
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if stop_after is not None and len(shown) >= stop_after and not pressed:
            os.write(terminal, b"\x03")
            pressed = True
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return shown.replace(b"^C", b""), status

shown, status = text_of(None)
shown.decode()
print("status", status, "line feed at the end", shown.endswith(b"\r\n"))
print("control characters", len(re.findall(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", shown)))
for stop_after in 1, 10, 100, 500:
    part, status = text_of(stop_after)
    part.decode()
    same = min(len(part), len(shown) - 2)
    print("after Ctrl-C: the same text", part[:same] == shown[:same], "status", status)
EOF
python3 watch.py
