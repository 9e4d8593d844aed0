# man.awk - turns the Markdown of docs/napier.1.md into a man page: awk -f cmake/man.awk PAGE.md >PAGE.1
#
# It knows what that page uses: fields at the top, # and ## headings, paragraphs, lists of terms (a line, then ": " and text),
# indented code, `code`, **bold**, *italic*, and a backslash before a character that is meant as itself.

# Text as troff reads it: its own characters escaped, fonts for the marks of Markdown.
function inline(text,    out, at, c, font) {
    font = "R"
    for (at = 1; at <= length(text); at++) {
        c = substr(text, at, 1)
        if (c == "`") {
            font = (font == "R") ? "B" : "R"
            in_code = !in_code
            out = out "\\f" font
        } else if (c == "*" && !in_code) {
            if (substr(text, at, 2) == "**") {
                at++
                bold = !bold
                out = out (bold ? "\\fB" : "\\fR")
            } else {
                italic = !italic
                out = out (italic ? "\\fI" : (bold ? "\\fB" : "\\fR"))
            }
        } else {
            if (c == "\\" && !in_code) c = substr(text, ++at, 1)
            out = out literal(c)
        }
    }
    return guard(out)
}
function literal(c) { return c == "\\" ? "\\e" : c == "-" ? "\\-" : c }
function verbatim(text,    out, at) {
    for (at = 1; at <= length(text); at++) out = out literal(substr(text, at, 1))
    return guard(out)
}
# A line that begins with a dot or a quote would be a request.
function guard(text) { return text ~ /^[.']/ ? "\\&" text : text }

# Prints the lines that have been read of a paragraph. They wait because a following ": " makes them terms.
function flush(    i) {
    if (count > 0 && !in_item) print ".PP"
    for (i = 1; i <= count; i++) print inline(lines[i])
    count = 0
}
function end_code() {
    if (in_block) print ".EE\n.RE"
    in_block = 0
}

NR == 1, /^$/ { # the fields
    if (match($0, /^[a-z]+: /)) field[substr($0, 1, RLENGTH - 2)] = substr($0, RLENGTH + 1)
    else printf ".TH \"%s\" \"%s\" \"\" \"%s\" \"%s\"\n", field["title"], field["section"], field["source"], field["volume"]
    next
}
/^    / && count == 0 {
    if (!in_block) print ".PP\n.RS 4\n.EX"
    in_block = 1
    for (; gap > 0; gap--) print ""
    print verbatim(substr($0, 5))
    next
}
/^$/ {
    if (in_block) gap++
    flush()
    in_item = 0
    next
}
{ end_code(); gap = 0 }
/^#+ / {
    flush()
    print (/^##/ ? ".SS " : ".SH ") inline(substr($0, index($0, " ") + 1))
    next
}
/^: / {
    print ".TP"
    term = lines[1]
    for (i = 2; i <= count; i++) term = term " " lines[i]
    print inline(term)
    count = 0
    in_item = 1
    $0 = substr($0, 3)
}
{ lines[++count] = $0 }
END { flush(); end_code() }
