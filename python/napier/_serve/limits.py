"""What a request may cost. docs/security.md lists these numbers."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Those that the command line can change, and those that follow from the model."""

    context: int  # tokens of a prompt and its answer
    body: int = 8 << 20  # bytes of a request
    queue: int = 256  # requests that wait
    seconds: float = 600.0  # from the end of the request to the end of the answer
    parallel: int = 2  # calls of generate at once
    conversations: int = 4  # the last ones, whose keys and values are kept


READ_SECONDS = 30.0  # for a request's body to arrive
READ_BYTES = 64 << 20  # of all bodies that are being read
CONNECTIONS = 512
SEQUENCES = 1024  # prompts times n of a request
BATCH = 256  # sequences of a call of generate, unless one request has more
JOIN_TOKENS = 512  # a call that runs takes prompts of so many tokens, or of twice its own longest, if its memory allows it
JOIN_RESULTS = 1 << 22  # tokens that all sequences of a call may have together, for others to join it
REQUEST_TOKENS = 1 << 20  # of all prompts of a request
QUEUE_TOKENS = 1 << 22  # of all prompts that wait
STOPS, STOP_BYTES = 16, 1024  # texts of `stop`, and bytes of each
STOP_IDS = 64
TOP = 128  # of top_logprobs and prompt_logprobs
LOGITS = 1 << 30  # bytes of the logits of one sequence, which top_logprobs and prompt_logprobs read
CHAT_TOKENS = 1024  # of an answer to messages, if the request does not say
GATHER, GATHER_MOST = 0.005, 0.05  # seconds: a call begins when no request has arrived for so long, or this long after the first
