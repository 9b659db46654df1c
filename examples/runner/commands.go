package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// exitCodeError ends the runner with this code.
type exitCodeError int

func (e exitCodeError) Error() string { return fmt.Sprintf("exit with code %d requested", int(e)) }

// executeLine executes a command, and echoes any other line.
func (a *agent) executeLine(ctx context.Context, line string) error {
	line = strings.TrimSpace(line)
	a.lease.renewIfDue(ctx)
	if !strings.HasPrefix(line, "/") {
		if line != "" {
			fmt.Fprintln(a.output, line)
			a.lines++
			a.words += len(strings.Fields(line))
		}
		return nil
	}
	name, rest, _ := strings.Cut(line[1:], " ")
	rest = strings.TrimSpace(rest)
	command, found := a.commands()[name]
	if !found {
		return fmt.Errorf("unknown command /%s", name)
	}
	log.Print("Executing: ", line)
	if err := command(ctx, rest); err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	return nil
}

// commands returns the commands by name.
func (a *agent) commands() map[string]func(ctx context.Context, rest string) error {
	return map[string]func(context.Context, string) error{
		"connect": a.tryConnect,
		"sleep":   func(ctx context.Context, rest string) error { return a.waitFor(ctx, rest, true) },
		"idle":    func(ctx context.Context, rest string) error { return a.waitFor(ctx, rest, false) },
		"cost":    a.addCost,
		"write":   a.appendToFile,
		"result":  a.setRawResult,
		"fail":    a.exitWithCode,
		"done":    a.markRunFinished,
		"exit":    func(context.Context, string) error { return exitCodeError(exitSuccess) },
	}
}

// waitFor waits for a time, during which it renews the Lease if it is working.
func (a *agent) waitFor(ctx context.Context, text string, working bool) error {
	takes, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	end := time.NewTimer(takes)
	defer end.Stop()
	for {
		var due <-chan time.Time
		if working {
			due = time.After(a.lease.timeUntilDue())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-due:
			a.lease.renewIfDue(ctx)
		}
	}
}

// addCost adds dollars to the cost, as a model would.
func (a *agent) addCost(_ context.Context, text string) error {
	cost, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return err
	}
	if a.cost == nil {
		a.cost = new(float64)
	}
	*a.cost += cost
	a.lease.cost = a.cost
	return nil
}

// appendToFile appends a line to a file in the workspace.
func (a *agent) appendToFile(_ context.Context, rest string) error {
	name, text, _ := strings.Cut(rest, " ")
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not a path in the workspace", name)
	}
	return a.workspace.appendLine(name, text)
}

// setRawResult replaces the runner's result with this text, valid or not.
func (a *agent) setRawResult(_ context.Context, text string) error {
	a.rawResult = text
	return nil
}

// exitWithCode exits with a code at each attempt, or only at the first ones.
func (a *agent) exitWithCode(_ context.Context, rest string) error {
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return errors.New("usage: /fail CODE [ATTEMPTS]")
	}
	code, err := strconv.ParseUint(fields[0], 10, 8)
	if err != nil {
		return err
	}
	if len(fields) > 1 {
		attempts, err := strconv.Atoi(fields[1])
		if err != nil {
			return err
		}
		if a.session.attempt > attempts {
			return nil
		}
	}
	return exitCodeError(code)
}

// markRunFinished reports that the run of an interactive session is finished.
func (a *agent) markRunFinished(ctx context.Context, _ string) error {
	return a.lease.markRunFinished(ctx)
}
