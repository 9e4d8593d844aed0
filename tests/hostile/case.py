"""One hostile input: the files it consists of, the command that reads them, and what to look for afterwards."""

from dataclasses import dataclass, field

# What stands in a file that exists before the run and that a failure must not change.
OLD = b"old contents\n"


@dataclass
class Case:
    what: str  # the mutation, in words: what a failure is reported as
    words: list  # of the command line, str or bytes; names are relative to the case's folder
    files: dict = field(default_factory=dict)  # name -> bytes; the folders of a name are made
    stdin: bytes = b""
    outputs: list = field(default_factory=list)  # the files that the command may write
    program: str = "napier"  # or the name of a replay program of tests/fuzz
    folders: list = field(default_factory=list)
    links: dict = field(default_factory=dict)  # name -> target
    fifos: dict = field(default_factory=dict)  # name -> bytes that a writer puts in; None: nobody writes or reads
    drained: list = field(default_factory=list)  # FIFOs that a reader empties
    read_only: list = field(default_factory=list)  # nobody may read (files) or write (folders) these
    file_size: int = 0  # limit of the size of a file, in place of a full disk; 0: the campaign's own
    must_fail: bool = False  # exit status 0 would be wrong
    described: int = 0  # bytes of memory that the input asks for by rights, beyond its own size
    never: list = field(default_factory=list)  # bytes that no output may hold

    def size(self):
        """The bytes that the command is given."""
        return sum(map(len, self.files.values())) + len(self.stdin)
