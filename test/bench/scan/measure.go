package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// operatorScanInterval is the interval between the operator's scans. It is longer than one scan.
const operatorScanInterval = time.Minute

type scanResult struct {
	duration, cpu time.Duration
	peakRSS       int64 // bytes
}

// subjects are the roles of the measured processes.
var subjects = []string{bareListSubject, scanSubject}

// pauseBetweenScans is the time that the API server has to finish its work for one scan before the next.
const pauseBetweenScans = 2 * time.Second

// measureRounds measures each subject once per round. The order changes with every round, because the load of a shared machine varies, and
// because each scan leaves work for the API server.
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

// measureOperator runs the operator with all its controllers until it has made the given number of scans.
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
		if err := harness.PollUntil(ctx, 3*operatorScanInterval, func() (bool, error) { return env.verifyReports(ctx, c) == nil, nil }); err != nil {
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

// Roles of the measured processes.
const (
	bareListSubject = "bare-list"
	scanSubject     = "scan"
)

// The bare loop uses the scanner's page size and concurrency.
const (
	listPageSize    = 500
	listConcurrency = 4
)

// runSubject makes one scan, and prints its duration in nanoseconds.
func runSubject(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACES JOBS", args[0])
	}
	jobs, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	c, err := harness.ConnectToCluster(args[1])
	if err != nil {
		return err
	}
	namespaces := strings.Split(args[2], ",")
	// Connecting and API discovery happen once in a process and are not measured.
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1alpha1.JobReportList{}} {
		if err := c.List(ctx, list, client.Limit(1)); err != nil {
			return err
		}
	}
	startedAt := time.Now()
	if args[0] != bareListSubject {
		jobreportcontroller.New(c, c, events.NewFakeRecorder(100), logr.Discard(), reportOptions(namespaces)).ReconcileAll(ctx)
	} else if err := listAllJobs(ctx, c, namespaces, jobs); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, time.Since(startedAt).Nanoseconds())
	return err
}

// reportOptions returns options with which every Job is a finding. This is the most expensive case.
func reportOptions(namespaces []string) jobreportcontroller.Options {
	thresholds := jobreport.DefaultThresholds()
	thresholds[jobreport.ReasonExternallyManaged].Suspicious = time.Nanosecond
	return jobreportcontroller.Options{Namespaces: namespaces, Interval: time.Hour, MaxFindings: 50, Thresholds: thresholds}
}

// listAllJobs is the least that a client needs to read all Jobs.
func listAllJobs(ctx context.Context, c client.Reader, namespaces []string, want int) error {
	var total atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listConcurrency)
	for _, namespace := range namespaces {
		group.Go(func() error {
			for token := ""; ; {
				var jobs batchv1.JobList
				if err := c.List(ctx, &jobs, client.InNamespace(namespace), client.Limit(listPageSize), client.Continue(token)); err != nil {
					return err
				}
				total.Add(int64(len(jobs.Items)))
				if token = jobs.Continue; token == "" {
					return nil
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if total.Load() != int64(want) {
		return fmt.Errorf("the bare loop listed %d Jobs, want %d", total.Load(), want)
	}
	return nil
}
