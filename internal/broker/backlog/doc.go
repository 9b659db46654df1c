// Package backlog reads how many messages wait in queues that Yardmaster does not manage. Each kind of source has a package that
// implements Source: package jetstream for NATS consumers, and a package below for each of the others. This package contains their shared
// code.
//
// A source that cannot be read returns an error, never 0: a backlog of 0 stops workers.
package backlog
