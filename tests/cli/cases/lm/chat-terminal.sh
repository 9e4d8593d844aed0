# At a terminal, with or without libedit: a prompt, and Ctrl-C ends the answer, after which the conversation goes on.
printf '{}' | napier generate - --model . 2>&1 | grep -q 'has no models' && skip "built without models"
python3 -c 'import pty; pty.openpty()' 2>/dev/null || skip "no python3 that makes a pseudo-terminal"
tiny_model model
echo "{{ messages | map(attribute='content') | join('/') }}" >model/chat_template.jinja
cat >talk.py <<'EOF2'
import os, pty

pid, terminal = pty.fork()
if pid == 0:
    os.execvp("napier", ["napier", "chat", "--model", "model", "-t", "2", "--max-tokens", "100000"])

def until(mark, more=0):
    shown = b""
    while mark not in shown or len(shown) < shown.index(mark) + len(mark) + more:
        shown += os.read(terminal, 65536)
    return shown

until(b"> ")
for message in b"hello", b"again":
    os.write(terminal, message + b"\r")
    until(b"\n", 20)
    os.write(terminal, b"\x03")
    until(b"\r\n> ")
    print("the prompt again")
os.write(terminal, b"/save talk.json\r")
until(b"> ")
os.write(terminal, b"/quit\r")
print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
EOF2
timeout 60 python3 talk.py || echo "no end"
grep -o '"role": "[a-z]*"' talk.json
