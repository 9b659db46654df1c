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

// operatorScanInterval of the operator's scans: as short as lets one end before the next begins.
const operatorScanInterval = time.Minute

// scanResult is what one scan took.
type scanResult struct {
	duration, cpu time.Duration
	peakRSS       int64 // bytes
}

// subjects are what is measured.
var subjects = []string{bareListSubject, laterScanSubject, firstScanSubject}

// pauseBetweenScans is how long the API server has to clear up after one turn before the next.
const pauseBetweenScans = 2 * time.Second

// measureRounds measures each so often. They take turns, because a machine that others use too
// is not as fast at all times, and in an order that is another each time: what was done
// before leaves the API server work to do.
func (env *environment) measureRounds(ctx context.Context, c *harness.Cluster, rounds int) (map[string][]scanResult, error) {
	results := map[string][]scanResult{}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time is what is wanted
	for round := range rounds + 1 {
		for _, i := range order.Perm(len(subjects)) {
			turn := subjects[i]
			time.Sleep(pauseBetweenScans)
			one, err := env.measureSubject(ctx, c, turn)
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

// measureSubject makes one scan, in a process of its own, and looks at what came of it.
func (env *environment) measureSubject(ctx context.Context, c *harness.Cluster, turn string) (scanResult, error) {
	if turn == firstScanSubject {
		if err := env.deleteReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return scanResult{}, err
	}
	process := exec.CommandContext(ctx, self, turn, c.Kubeconfig, strings.Join(env.namespaceNames(), ","), strconv.Itoa(env.jobs))
	process.Stderr = os.Stderr
	out, err := process.Output()
	if err != nil {
		return scanResult{}, err
	}
	took, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return scanResult{}, err
	}
	if turn != bareListSubject {
		if err := env.verifyReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	cpu, peakRSS := harness.ExitedProcessUsage(process.ProcessState)
	return scanResult{duration: time.Duration(took), cpu: cpu, peakRSS: peakRSS}, nil
}

// verifyReports fails if a Job is missing in the reports.
func (env *environment) verifyReports(ctx context.Context, c client.Reader) error {
	var reports v1alpha1.JobReportList
	if err := c.List(ctx, &reports); err != nil {
		return err
	}
	found := 0
	for i := range reports.Items {
		found += int(reports.Items[i].Status.Summary.Suspicious)
	}
	if found != env.jobs {
		return fmt.Errorf("the reports tell of %d Jobs, want %d", found, env.jobs)
	}
	return nil
}

// measureOperator runs the operator, with all its controllers, until it has scanned so
// many times.
func measureOperator(ctx context.Context, c *harness.Cluster, binary string, env *environment, scans int) (scanResult, error) {
	if err := env.deleteReports(ctx, c); err != nil {
		return scanResult{}, err
	}
	names := strings.Join(env.namespaceNames(), ",")
	process, err := harness.StartOperator(ctx, binary, c, "--namespaces", names, "--report-namespaces", names,
		"--report-interval="+operatorScanInterval.String(), "--report-externally-managed-suspicious-after=1ns")
	if err != nil {
		return scanResult{}, err
	}
	for scan := range scans {
		fmt.Fprintf(os.Stderr, "  the operator scans, %d of %d\n", scan+1, scans)
		if err := env.waitForReports(ctx, c); err != nil {
			_ = process.Process.Kill()
			return scanResult{}, err
		}
		// Without reports the next scan writes them again, and is seen to be over.
		if err := env.deleteReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	_ = process.Process.Signal(os.Interrupt)
	_ = process.Wait()
	cpu, peakRSS := harness.ExitedProcessUsage(process.ProcessState)
	return scanResult{cpu: cpu / time.Duration(scans), peakRSS: peakRSS}, nil
}

func (env *environment) waitForReports(ctx context.Context, c client.Reader) error {
	return harness.PollUntil(ctx, 3*operatorScanInterval, func() (bool, error) {
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
		return ready == env.namespaces && env.verifyReports(ctx, c) == nil, nil
	})
}
