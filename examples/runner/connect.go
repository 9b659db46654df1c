package main

import (
	"context"
	"log"
	"net"
	"time"
)

// dialTimeout allows a second SYN packet. A NetworkPolicy drops packets, so there is no answer.
const dialTimeout = 3 * time.Second

// tryConnect tries a TCP connection, and reports the outcome in the result. An unreachable address is
// not an error.
func (a *agent) tryConnect(ctx context.Context, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return err
	}
	connection, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		log.Print(err)
		a.connectResults = append(a.connectResults, "did not reach "+address)
		return nil
	}
	a.connectResults = append(a.connectResults, "reached "+address)
	return connection.Close()
}
