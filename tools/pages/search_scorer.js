// How the search of the site orders its results: pages for readers before those about how Tidelog is built.
// It replaces the whole of Sphinx's object of this name; all but `score` has Sphinx's values.
const PLACES = [
  ["docs/start/", 12],
  ["docs/guides/", 10],
  ["client/tidelog_cli/cheat", 6],
  ["docs/operate/", 2],
  ["docs/reference/", 2],
  ["docs/decisions/", -12],
  ["docs/architecture/", -8],
  ["CHANGELOG", -12],
  ["SECURITY", -6],
  ["CONTRIBUTING", -12],
  ["THIRD_PARTY_LICENCES", -12],
  ["deploy/checks/", -8],
  ["tests/", -12],
];

var Scorer = {
  score: ([page, , , , score]) => score + (PLACES.find(([place]) => page.startsWith(place)) ?? ["", 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
