// Command runner is the reference implementation of a session's runner. It uses all inputs and follows
// all rules of docs/runner.md, and calls no model: it echoes the lines of its prompt. A line that
// begins with a slash is a command, such as /sleep 20s; docs/runner.md lists them.
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
	// exitTerminated is the code that a shell reports for a program that SIGTERM ended. A
	// terminated runner must not exit with 0, because its work is incomplete.
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

// runAndWriteResult runs a session and returns its exit code. It writes a result for every outcome.
func runAndWriteResult(ctx context.Context, getenv func(string) string, out io.Writer) (int, error) {
	s, err := readSession(getenv)
	if err != nil {
		return exitFailure, fmt.Errorf("reading the session's inputs: %w", err)
	}
	lease, err := newLeaseClient(getenv, s.job, tokenDirectory)
	if err != nil {
		return exitFailure, fmt.Errorf("preparing to renew the Lease: %w", err)
	}
	lease.restoreCost(ctx)
	lease.renewIfDue(ctx) // without that, the operator does not know the activity of a runner that waits for its first message
	agent, err := newAgent(s, lease, out)
	if err != nil {
		return exitFailure, err
	}
	defer agent.closeWorkspace()
	code, err := exitCodeOf(agent.runSession(ctx))
	return code, errors.Join(err, writeResult(s.resultFile, agent.encodeResult()))
}

// exitCodeOf returns the exit code for the error with which the agent ended.
func exitCodeOf(end error) (int, error) {
	var requested exitCodeError
	switch {
	case end == nil:
		return exitSuccess, nil
	case errors.As(end, &requested):
		return int(requested), nil
	case errors.Is(end, context.Canceled):
		log.Print("Terminated; exiting")
		return exitTerminated, nil
	default:
		return exitFailure, end
	}
}
