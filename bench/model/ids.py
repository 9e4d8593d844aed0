"""The tokens that a line asks to score: the same for every worker (napier_worker.c has the same numbers)."""


class Ids:
    def __init__(self, vocabulary):
        self.vocabulary = vocabulary
        self.state = 0

    def some(self, count):
        out = []
        for _ in range(count):
            self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
            out.append((self.state >> 33) % self.vocabulary)
        return out

    def of(self, line):
        """Sequences, and how many of the last tokens of each are rated: 0 for all but the first."""
        word, *numbers = line.split()
        if word == "all":
            return [self.some(int(numbers[0]))], 0
        prompt, response, count = (int(n) for n in numbers[:3])
        begin = self.some(prompt)
        return [begin + self.some(response) for _ in range(count)], response
