/* How the site's search ranks: pages for users come before decisions and traps. The other scores are Sphinx's. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => (page.startsWith("decisions/") ? score - 1000 : score),
};
