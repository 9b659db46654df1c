package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// interval of the operator's scans: as short as lets one end before the next begins.
const interval = time.Minute

// result is what one scan took.
type result struct {
	took, cpu time.Duration
	peakRSS   int64 // bytes
}

// turns are what is measured.
var turns = []string{bareList, scanAgain, scanFirst}

// rest is how long the API server has to clear up after one turn before the next.
const rest = 2 * time.Second

// takeTurns measures each so often. They take turns, because a machine that others use too
// is not as fast at all times, and in an order that is another each time: what was done
// before leaves the API server work to do.
func (y *yard) takeTurns(ctx context.Context, c *harness.Cluster, rounds int) (map[string][]result, error) {
	results := map[string][]result{}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time is what is wanted
	for round := range rounds + 1 {
		for _, i := range order.Perm(len(turns)) {
			turn := turns[i]
			time.Sleep(rest)
			one, err := y.measure(ctx, c, turn)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", turn, err)
			}
			if round > 0 { // the first is for warming up, and so that there are reports
				results[turn] = append(results[turn], one)
			}
		}
	}
	return results, nil
}

// measure makes one scan, in a process of its own, and looks at what came of it.
func (y *yard) measure(ctx context.Context, c *harness.Cluster, turn string) (result, error) {
	if turn == scanFirst {
		if err := y.clearReports(ctx, c); err != nil {
			return result{}, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	process := exec.CommandContext(ctx, self, turn, c.Kubeconfig, strings.Join(y.names(), ","), strconv.Itoa(y.jobs))
	process.Stderr = os.Stderr
	out, err := process.Output()
	if err != nil {
		return result{}, err
	}
	took, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return result{}, err
	}
	if turn != bareList {
		if err := y.check(ctx, c); err != nil {
			return result{}, err
		}
	}
	cpu, peakRSS := harness.UsageOf(process.ProcessState)
	return result{took: time.Duration(took), cpu: cpu, peakRSS: peakRSS}, nil
}

// check fails if a Job is missing in the reports.
func (y *yard) check(ctx context.Context, c client.Reader) error {
	var reports v1alpha1.JobReportList
	if err := c.List(ctx, &reports); err != nil {
		return err
	}
	found := 0
	for i := range reports.Items {
		found += int(reports.Items[i].Status.Summary.Suspicious)
	}
	if found != y.jobs {
		return fmt.Errorf("the reports tell of %d Jobs, want %d", found, y.jobs)
	}
	return nil
}

// measureOperator runs the operator, with all its controllers, until it has scanned so
// many times.
func measureOperator(ctx context.Context, c *harness.Cluster, binary string, y *yard, scans int) (result, error) {
	if err := y.clearReports(ctx, c); err != nil {
		return result{}, err
	}
	names := strings.Join(y.names(), ",")
	process, err := harness.StartOperator(ctx, binary, c, "--namespaces", names, "--report-namespaces", names,
		"--report-interval="+interval.String(), "--report-externally-managed-suspicious-after=1ns")
	if err != nil {
		return result{}, err
	}
	for scan := range scans {
		fmt.Fprintf(os.Stderr, "  the operator scans, %d of %d\n", scan+1, scans)
		if err := y.waitForReports(ctx, c); err != nil {
			_ = process.Process.Kill()
			return result{}, err
		}
		// Without reports the next scan writes them again, and is seen to be over.
		if err := y.clearReports(ctx, c); err != nil {
			return result{}, err
		}
	}
	_ = process.Process.Signal(os.Interrupt)
	_ = process.Wait()
	cpu, peakRSS := harness.UsageOf(process.ProcessState)
	return result{cpu: cpu / time.Duration(scans), peakRSS: peakRSS}, nil
}

func (y *yard) waitForReports(ctx context.Context, c client.Reader) error {
	return harness.Poll(ctx, 3*interval, func() (bool, error) {
		var reports v1alpha1.JobReportList
		if err := c.List(ctx, &reports); err != nil {
			return false, err
		}
		ready := 0
		for i := range reports.Items {
			if meta.IsStatusConditionTrue(reports.Items[i].Status.Conditions, v1alpha1.ConditionReportReady) {
				ready++
			}
		}
		return ready == y.namespaces && y.check(ctx, c) == nil, nil
	})
}
