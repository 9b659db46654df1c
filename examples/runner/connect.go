package main

import (
	"context"
	"log"
	"net"
	"time"
)

// dialTimeout is enough for a second try: where the network is closed there is no answer.
const dialTimeout = 3 * time.Second

// tryConnect tries whether an address can be reached, and puts what came of it into the result.
// That it cannot be is no failure: somebody wants to know.
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
