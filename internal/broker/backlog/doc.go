// Package backlog reads how many messages wait in queues that Yardmaster does not manage.
// Each kind of source has its own package, which implements Source; that of NATS consumers is the
// package of the engine. This package contains what they share.
//
// A source that cannot be read returns an error, never 0: a backlog of 0 stops workers.
package backlog
