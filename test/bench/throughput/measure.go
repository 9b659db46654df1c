package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"text/tabwriter"
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

// minThroughputRatio is the target for the median of the ratios.
const minThroughputRatio = 0.9

// printReport prints the results and returns an error if the target is missed.
func printReport(jobs int, rounds []roundResult) error {
	fmt.Printf("\n%d jobs without work, %d rounds; medians\n", jobs, len(rounds))
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tworker\tbare consumer\tratio\tsmallest\tgreatest\t")
	row := func(label, format string, value func(t *subjectUsage) float64) []float64 {
		var worker, bare, ratios []float64
		for i := range rounds {
			worker, bare = append(worker, value(&rounds[i].worker)), append(bare, value(&rounds[i].bareConsumer))
			ratios = append(ratios, worker[i]/bare[i])
		}
		fmt.Fprintf(w, "%s\t"+format+"\t"+format+"\t%.2f\t%.2f\t%.2f\t\n", label, harness.Median(worker), harness.Median(bare),
			harness.Median(ratios), harness.Quantile(ratios, 0), harness.Quantile(ratios, 1))
		return ratios
	}
	micros := func(cpu time.Duration) float64 { return float64(cpu) / float64(time.Microsecond) / float64(jobs) }
	ratios := row("jobs per second", "%.0f", func(t *subjectUsage) float64 { return float64(jobs) / t.duration.Seconds() })
	row("CPU µs per job", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu) })
	row("the server's", "%.1f", func(t *subjectUsage) float64 { return micros(t.serverCPU) })
	row("both", "%.1f", func(t *subjectUsage) float64 { return micros(t.cpu + t.serverCPU) })
	_ = w.Flush() // it writes to standard output
	return harness.CheckTarget(fmt.Sprintf("the median ratio of jobs per second ≥ %.1f", minThroughputRatio), harness.Median(ratios) >= minThroughputRatio)
}
