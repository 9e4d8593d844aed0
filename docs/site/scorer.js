/* The order of the search's results: Sphinx's own weights, and a name of fewer parts before one of more, so that napier.softmax
 * comes before napier.dask.softmax. */
var Scorer = {
  score: ([document, title, anchor, description, score]) =>
    score - (/^napier(\.\w+)+$/.test(title) ? title.split(".").length : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
