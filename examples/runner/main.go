// Command runner is the reference of a session's runner, and an example of how to write one.
// It finds all that a runner finds, keeps to all that a runner has to keep to, and calls no
// model: it echoes the lines of its prompt. A line that begins with a slash is an order, such
// as /sleep 20s; docs/runner.md has them all.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes. A session completes with 0, and fails with any other.
const (
	exitSuccess = 0
	exitFailure = 2
	// exitTerminated is what a shell reports of a program that SIGTERM ended. A runner that was told
	// to end has not completed its work, and must not say that it has.
	exitTerminated = 128 + int(syscall.SIGTERM)
)

func main() {
	log.SetFlags(log.LstdFlags | log.LUTC)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code, err := runAndWriteResult(ctx, os.Getenv, os.Stdout)
	stop()
	if err != nil {
		log.Print(err)
	}
	os.Exit(code)
}

// runAndWriteResult runs a session, and returns its exit code. Whatever the outcome is, there is a result.
func runAndWriteResult(ctx context.Context, getenv func(string) string, out io.Writer) (int, error) {
	s, err := readSession(getenv)
	if err != nil {
		return exitFailure, fmt.Errorf("reading what the session is: %w", err)
	}
	lease, err := newLeaseClient(getenv, s.job, tokenDirectory)
	if err != nil {
		return exitFailure, fmt.Errorf("preparing to renew the Lease: %w", err)
	}
	agent, err := newAgent(s, lease, out)
	if err != nil {
		return exitFailure, err
	}
	defer agent.closeWorkspace()
	code, err := exitCodeOf(agent.runSession(ctx))
	return code, errors.Join(err, writeResult(s.resultFile, agent.encodeResult()))
}

// exitCodeOf is what an agent's end means to whoever started it.
func exitCodeOf(end error) (int, error) {
	var asked exitCodeError
	switch {
	case end == nil:
		return exitSuccess, nil
	case errors.As(end, &asked):
		return int(asked), nil
	case errors.Is(end, context.Canceled):
		log.Print("Told to end")
		return exitTerminated, nil
	default:
		return exitFailure, end
	}
}
