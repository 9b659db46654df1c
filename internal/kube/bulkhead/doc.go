// Package bulkhead observes the peers of tenants, such as brokers, sources and workers, outside the
// workers of a controller. A peer that does not answer then occupies none of them.
//
// Executor decides what runs: it takes namespaces in turn, and limits how much runs at once per
// peer, per namespace and in total. What was slow the last time has its own limit, so that it
// delays only what is slow too. Observer stores the result for the next reconciliation.
package bulkhead
