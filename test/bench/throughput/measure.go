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

// subjectUsage is what one subject used for a backlog: time, CPU time, and CPU time of the server.
type subjectUsage struct{ duration, cpu, serverCPU time.Duration }

// roundResult contains the usage of each subject.
type roundResult struct{ worker, bareConsumer subjectUsage }

// throughputRatio returns the worker's throughput relative to that of the bare consumer.
func (r *roundResult) throughputRatio() float64 {
	return r.bareConsumer.duration.Seconds() / r.worker.duration.Seconds()
}

// measureRound measures each subject once.
func (q *benchmarkQueue) measureRound(ctx context.Context, number, jobs int) (r roundResult, err error) {
	turns := []struct {
		subject string
		usage   *subjectUsage
	}{{workerSubject, &r.worker}, {bareConsumerSubject, &r.bareConsumer}}
	for i := range turns {
		turn := turns[(i+number)%len(turns)]
		if *turn.usage, err = q.measureSubject(ctx, turn.subject, jobs); err != nil {
			return r, err
		}
	}
	return r, nil
}

// measureSubject publishes a backlog and runs a subject in a process of its own.
func (q *benchmarkQueue) measureSubject(ctx context.Context, subject string, jobs int) (t subjectUsage, err error) {
	if err := q.PublishBurst(ctx, jobs, waitTimeout); err != nil {
		return t, fmt.Errorf("publishing the backlog: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	before, err := harness.ProcessCPUTime(q.serverPID)
	if err != nil {
		return t, err
	}
	process := exec.CommandContext(ctx, self, subject, q.url, strconv.Itoa(jobs))
	process.Stderr = os.Stderr
	output, err := process.Output()
	if err != nil {
		return t, fmt.Errorf("%s: %w", subject, err)
	}
	if _, err := fmt.Sscan(string(output), &t.duration, &t.cpu); err != nil {
		return t, fmt.Errorf("parsing the output of %s, %q: %w", subject, output, err)
	}
	t.serverCPU, err = harness.ProcessCPUTime(q.serverPID)
	t.serverCPU -= before
	return t, err
}
