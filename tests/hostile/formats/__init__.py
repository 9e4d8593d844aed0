"""One module a format. Each has the name that docs/security.md lists, SHARE, how many of 2,000 inputs it gets, make(rng,
index): input number `index`, which takes the kinds of mutation in turn and the rest from rng; and good(rng): an input that
mutations start from, which must give a result. Without that the campaign would find nothing and not know."""
