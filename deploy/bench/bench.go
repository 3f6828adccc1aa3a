// Package bench measures what a request through Weir costs, with a real Envoy and
// the real binaries: latency, CPU time a request, decisions a second and core, memory
// while a thousand answers stream. make bench-path runs it; docs/PERFORMANCE.md says
// what came of it. It has tests only.
//
// Three kinds of Envoy take turns under the same loads: one without ext_proc, two
// whose ext_proc does nothing but answer (to the headers; to the headers and the
// body), and Weir's. The first two run the static file of Weir's own plan. It has
// the same listener, filters, routes, clusters and access log, but for the ext_proc
// filter itself and for the transform filter, which in Weir's Envoy is skipped where
// weir-extproc has answered; their routes do not ask for a model. Since nobody picks
// an engine there, Maglev does, by the same weights.
package bench
