package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// turn is what one contestant took for a backlog: time, CPU, and CPU of the server's.
type turn struct{ took, cpu, server time.Duration }

// round is a turn of each.
type round struct{ ours, bare turn }

// ratio is how many jobs the worker does for each of the bare consumer's.
func (r *round) ratio() float64 { return r.bare.took.Seconds() / r.ours.took.Seconds() }

// takeTurns measures each once.
func (q *queue) takeTurns(ctx context.Context, number, jobs int, profile string) (r round, err error) {
	turns := []func() error{
		func() error {
			path := ""
			if profile != "" {
				path = fmt.Sprintf("%s-%d.pprof", profile, number)
			}
			r.ours, err = q.measure(ctx, ours, jobs, path)
			return err
		},
		func() error {
			r.bare, err = q.measure(ctx, bare, jobs, "")
			return err
		},
	}
	for i := range turns {
		if err := turns[(i+number)%len(turns)](); err != nil {
			return r, err
		}
	}
	return r, nil
}

// measure makes a backlog, and has a contestant work it off in a process of its own.
func (q *queue) measure(ctx context.Context, contestant string, jobs int, profile string) (t turn, err error) {
	if err := q.fill(ctx, jobs); err != nil {
		return t, fmt.Errorf("making a backlog: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	before, err := harness.CPUOf(q.server)
	if err != nil {
		return t, err
	}
	process := exec.CommandContext(ctx, self, contestant, q.url, strconv.Itoa(jobs), profile)
	process.Stderr = os.Stderr
	output, err := process.Output()
	if err != nil {
		return t, fmt.Errorf("%s: %w", contestant, err)
	}
	if _, err := fmt.Sscan(string(output), &t.took, &t.cpu); err != nil {
		return t, fmt.Errorf("%s says %q: %w", contestant, output, err)
	}
	t.server, err = harness.CPUOf(q.server)
	t.server -= before
	return t, err
}
