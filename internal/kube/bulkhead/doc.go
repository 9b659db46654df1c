// Package bulkhead observes the peers of tenants, such as brokers, sources and workers, outside the workers of a controller, so
// that a peer that does not answer occupies none of these workers.
//
// Executor decides what runs: it takes namespaces in turn, and limits the concurrent work per peer, per namespace and in total.
// Work that was slow the last time has its own limit, so that it delays only slow work. Observer stores the result for the next
// reconciliation.
package bulkhead
