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
	"github.com/yardmaster/yardmaster/test/testenv"
)

// operatorScanInterval is the interval between the operator's scans. It is longer than one
// scan.
const operatorScanInterval = time.Minute

// scanResult is the result of one scan.
type scanResult struct {
	duration, cpu time.Duration
	peakRSS       int64 // bytes
}

// subjects are the roles of the measured processes.
var subjects = []string{bareListSubject, laterScanSubject, firstScanSubject}

// pauseBetweenScans is the time that the API server has to finish its work for one scan before
// the next.
const pauseBetweenScans = 2 * time.Second

// measureRounds measures each subject once per round. The order changes with every round,
// because the load of a shared machine varies, and because each scan leaves work for the API
// server.
func (env *environment) measureRounds(ctx context.Context, c *harness.Cluster, rounds int) (map[string][]scanResult, error) {
	results := map[string][]scanResult{}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the order must be reproducible
	for round := range rounds + 1 {
		for _, i := range order.Perm(len(subjects)) {
			subject := subjects[i]
			time.Sleep(pauseBetweenScans)
			one, err := env.measureSubject(ctx, c, subject)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subject, err)
			}
			if round > 0 { // round 0 warms up and creates the reports
				results[subject] = append(results[subject], one)
			}
		}
	}
	return results, nil
}

// measureSubject makes one scan in a process of its own and verifies its result.
func (env *environment) measureSubject(ctx context.Context, c *harness.Cluster, subject string) (scanResult, error) {
	if subject == firstScanSubject {
		if err := env.deleteReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return scanResult{}, err
	}
	process := exec.CommandContext(ctx, self, subject, c.Kubeconfig, strings.Join(env.namespaceNames(), ","), strconv.Itoa(env.jobs))
	process.Stderr = os.Stderr
	out, err := process.Output()
	if err != nil {
		return scanResult{}, err
	}
	took, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return scanResult{}, err
	}
	if subject != bareListSubject {
		if err := env.verifyReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	cpu, peakRSS := harness.ExitedProcessUsage(process.ProcessState)
	return scanResult{duration: time.Duration(took), cpu: cpu, peakRSS: peakRSS}, nil
}

// verifyReports returns an error if the reports do not contain every Job.
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
		return fmt.Errorf("the reports contain %d Jobs, want %d", found, env.jobs)
	}
	return nil
}

// measureOperator runs the operator with all its controllers until it has made the given number
// of scans.
func measureOperator(ctx context.Context, c *harness.Cluster, binary string, env *environment, scans int) (scanResult, error) {
	if err := env.deleteReports(ctx, c); err != nil {
		return scanResult{}, err
	}
	names := strings.Join(env.namespaceNames(), ",")
	operator, err := testenv.StartOperator(ctx, binary, c.Cluster, "--namespaces", names, "--report-namespaces", names,
		"--report-interval="+operatorScanInterval.String(), "--report-externally-managed-suspicious-after=1ns")
	if err != nil {
		return scanResult{}, err
	}
	for scan := range scans {
		harness.PrintProgress("waiting for scan %d of %d of the operator", scan+1, scans)
		if err := env.waitForReports(ctx, c); err != nil {
			operator.Kill()
			return scanResult{}, err
		}
		// The next scan writes the reports again, which shows that it is complete.
		if err := env.deleteReports(ctx, c); err != nil {
			return scanResult{}, err
		}
	}
	operator.Stop()
	cpu, peakRSS := harness.ExitedProcessUsage(operator.State())
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
			if meta.IsStatusConditionTrue(reports.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == env.namespaces && env.verifyReports(ctx, c) == nil, nil
	})
}
