// Package modelproxy is the proxy between an agent and the API of its model, in a container of the session's Pod that alone has the
// provider's key: see decision 0177. It reads the tokens of each response, prices them, and admits no request beyond the budget of its
// attempt.
//
// The parts without I/O are prices.go, the formats of the providers (format.go and a file for each), and the ledger. server.go
// forwards requests, and run.go is the program.
package modelproxy
