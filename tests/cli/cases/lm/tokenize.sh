# Text to token ids and back, with a tiny tokenizer: a byte alphabet, twenty merges and Qwen's pattern.
napier tokenize /dev/null --model "$here/../support/tiny_tokenizer.json" 2>&1 |
    grep -q 'has no tokenizer' && skip "built without tokenizer"
mkdir model && cp "$here/../support/tiny_tokenizer.json" model/tokenizer.json
printf 'hello world' >hello.txt
printf 'hello\n\ncafe\314\201! \344\270\255' >lines.txt
printf 'hi <|im_end|>' >special.txt

told napier tokenize hello.txt --model model
told napier tokenize hello.txt --model model/tokenizer.json --count
told napier tokenize hello.txt -m model --tokens
told napier tokenize lines.txt -m model --lines
told napier tokenize special.txt -m model
told napier tokenize special.txt -m model --plain-special --tokens
run_line 'printf "a\0b\n" | napier tokenize - -m model --tokens'
told napier tokenize hello.txt -m model -o ids.txt
cat ids.txt
told napier tokenize ids.txt -m model --decode
echo
run_line 'napier tokenize special.txt -m model | napier tokenize - -m model --decode --skip-special'
echo
run_line 'printf "[259, 264]\n\n65,66\n" | napier tokenize - -m model --decode --lines'
run_line 'napier tokenize lines.txt -m model | napier tokenize - -m model -d -o again.txt'
od -An -c again.txt

# Errors
run_line 'printf "ab\377" | napier tokenize - -m model'
run_line 'printf "fine\nab\303(\n" | napier tokenize - -m model --lines --count'
run_line 'printf "1 2 x" | napier tokenize - -m model -d'
run_line 'printf "1 285 285 286" | napier tokenize - -m model -d' # a head may have more rows
echo
run_line 'printf "1 99999999999" | napier tokenize - -m model -d'
told napier tokenize nothing.txt -m model
told napier tokenize hello.txt -m nothing
told napier tokenize hello.txt -m hello.txt
sed 's/NFC/Nmt/' model/tokenizer.json >other.json
told napier tokenize hello.txt -m other.json
mkfifo pipe
told timeout 60 napier tokenize hello.txt -m pipe
run_line 'head -c 600000000 /dev/zero | napier tokenize - -m model --count'
run_line 'head -c 600000000 /dev/zero | napier tokenize - -m model --count --lines'

# The command line
told napier tokenize
told napier tokenize hello.txt
told napier tokenize hello.txt hello.txt -m model
told napier tokenize hello.txt -m model --decode --count
told napier tokenize hello.txt -m model --text
told napier tokenize hello.txt -m model --skip-special
told napier tokenize hello.txt -m model --count --tokens
told napier tokenize hello.txt -m model --bad
