// Package brokerconn maintains the connections to brokers for all controllers.
//
// The Manager has a Conn for each broker that objects refer to. A Conn reads the Secrets of its reference by name, bypassing the cache,
// and connects. It then probes the broker every few seconds, for all its queues. It reconnects when the broker is lost or a Secret
// changes, and is closed when it is no longer used. Callers never wait for a connection: they get its current state, and listeners are
// notified of every change.
//
//	            ┌── Secret missing or invalid ◂──┐
//	            ▾                                │
//	Connecting ─┴▸ Connected ─ broker lost ─▸ Problem
//	                   ▴                         │
//	                   └───────── retry ─────────┘
//
// All controllers share a read of the stats of a queue, and a request that waits for its next message. SourceReader does the same for
// backlog sources.
package brokerconn
