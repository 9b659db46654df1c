// Command scan measures the scanner that writes JobReports, on a real control plane full of
// Jobs, compared with a bare loop that lists the same Jobs in the same pages and discards them.
//
//	go run ./test/bench/scan                               100,000 Jobs in 10 namespaces
//	go run ./test/bench/scan -jobs 10000 -namespaces 10    10,000 Jobs in 10 namespaces
//
// Each subject is a process of its own that makes one scan; the subjects take turns. The first scan
// creates the reports and is not measured: later ones find the same Jobs and write nothing. Then a
// release build of the operator runs until it has scanned several times, to measure its memory.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/jobreport"
	jobreportcontroller "github.com/yardmaster/yardmaster/internal/kinds/jobreport/controller"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

type environment struct{ jobs, namespaces, rounds, scans int }

func main() {
	env := &environment{jobs: 100_000, namespaces: 10, rounds: 6, scans: 3}
	harness.PositiveFlag(&env.jobs, "jobs", "total number of Jobs")
	harness.PositiveFlag(&env.namespaces, "namespaces", "number of namespaces")
	harness.PositiveFlag(&env.rounds, "rounds", "number of scans of each subject")
	harness.PositiveFlag(&env.scans, "scans", "number of scans of the operator before its memory is measured")
	harness.RunOnCluster(env.runBenchmark, map[string]harness.ProcessRole{bareListSubject: runSubject, scanSubject: runSubject})
}

func (env *environment) runBenchmark(ctx context.Context, c *harness.Cluster, operator string) error {
	startedAt := time.Now()
	env.createJobs(ctx, c)
	harness.PrintProgress("%d Jobs in %d namespaces, created in %s", env.jobs, env.namespaces, time.Since(startedAt).Round(time.Second))
	results := env.measureRounds(ctx, c)
	printReport(env, results, env.measureOperator(ctx, c, operator))
	return nil
}

func printReport(env *environment, results map[string][]scanResult, operator scanResult) {
	fmt.Printf("\n%d Jobs in %d namespaces; medians of %d scans\n", env.jobs, env.namespaces, len(results[bareListSubject]))
	w := harness.NewTable("\tscanner\tbare list\tratio\t")
	row := func(label string, value func(scanResult) float64) {
		median := func(subject string) float64 {
			var values []float64
			for _, r := range results[subject] {
				values = append(values, value(r))
			}
			return harness.Median(values)
		}
		harness.PrintComparison(w, label, median(scanSubject), median(bareListSubject))
	}
	row("a scan, s", func(r scanResult) float64 { return r.duration.Seconds() })
	row("CPU s", func(r scanResult) float64 { return r.cpu.Seconds() })
	row("peak RSS MB", func(r scanResult) float64 { return float64(r.peakRSS) / 1e6 })
	_ = w.Flush() // it writes to standard output
	fmt.Printf("\nthe operator, with all its controllers: peak RSS %.0f MB, %.2f s of CPU per scan, its start included\n",
		float64(operator.peakRSS)/1e6, operator.cpu.Seconds())
}

// operatorScanInterval is the interval between the operator's scans. It is longer than one scan.
const operatorScanInterval = time.Minute

type scanResult struct {
	duration, cpu time.Duration
	peakRSS       int64 // bytes
}

// pauseBetweenScans is the time that the API server has to finish its work for one scan before the next.
const pauseBetweenScans = 2 * time.Second

// measureRounds measures each subject once per round. The order changes with every round, because the load of a shared machine varies, and
// because each scan leaves work for the API server.
func (env *environment) measureRounds(ctx context.Context, c *harness.Cluster) map[string][]scanResult {
	results, subjects := map[string][]scanResult{}, []string{bareListSubject, scanSubject}
	order := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the order must be reproducible
	for round := range env.rounds + 1 {
		for _, i := range order.Perm(len(subjects)) {
			subject := subjects[i]
			time.Sleep(pauseBetweenScans)
			one := env.measureSubject(ctx, c, subject)
			if round > 0 { // round 0 warms up and creates the reports
				results[subject] = append(results[subject], one)
			}
		}
	}
	return results
}

// measureSubject makes one scan in a process of its own and verifies its result.
func (env *environment) measureSubject(ctx context.Context, c *harness.Cluster, subject string) scanResult {
	process := harness.SelfCommand(ctx, subject, c.Kubeconfig, strings.Join(env.namespaceNames(), ","), strconv.Itoa(env.jobs))
	took := harness.Must(time.ParseDuration(strings.TrimSpace(string(harness.Must(process.Output())))))
	if subject != bareListSubject {
		harness.Check(env.verifyReports(ctx, c))
	}
	cpu, peakRSS := harness.ExitedProcessUsage(process.ProcessState)
	return scanResult{took, cpu, peakRSS}
}

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
func (env *environment) measureOperator(ctx context.Context, c *harness.Cluster, binary string) scanResult {
	env.deleteReports(ctx, c)
	names := strings.Join(env.namespaceNames(), ",")
	operator := harness.Environment(names).StartOperator(ctx, binary, c, "--report-namespaces", names,
		"--report-interval="+operatorScanInterval.String(), "--report-externally-managed-suspicious-after=1ns")
	defer operator.Kill()
	for scan := range env.scans {
		harness.PrintProgress("waiting for scan %d of %d of the operator", scan+1, env.scans)
		harness.Check(harness.PollUntil(ctx, 3*operatorScanInterval, func() (bool, error) { return env.verifyReports(ctx, c) == nil, nil }))
		env.deleteReports(ctx, c) // the next scan writes the reports again, which shows that it is complete
	}
	operator.Stop()
	cpu, peakRSS := harness.ExitedProcessUsage(operator.State())
	return scanResult{cpu: cpu / time.Duration(env.scans), peakRSS: peakRSS}
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

func runSubject(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACES JOBS", args[0])
	}
	jobs := harness.Must(strconv.Atoi(args[3]))
	c := harness.Must(harness.ConnectToCluster(args[1]))
	namespaces := strings.Split(args[2], ",")
	// Connecting and API discovery happen once in a process and are not measured.
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1alpha1.JobReportList{}} {
		harness.Check(c.List(ctx, list, client.Limit(1)))
	}
	startedAt := time.Now()
	if args[0] != bareListSubject {
		jobreportcontroller.New(c, c, events.NewFakeRecorder(100), logr.Discard(), reportOptions(namespaces)).ReconcileAll(ctx)
	} else {
		harness.Check(listAllJobs(ctx, c, namespaces, jobs))
	}
	fmt.Println(time.Since(startedAt))
	return nil
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
	err := group.Wait()
	if err == nil && total.Load() != int64(want) {
		err = fmt.Errorf("the bare loop listed %d Jobs, want %d", total.Load(), want)
	}
	return err
}

// unusedJobManager is the managedBy of the Jobs. Otherwise the Job controller of Kubernetes would add load while the scanner is measured.
const unusedJobManager = "bench.yardmaster.dev/nobody"

func (env *environment) namespaceNames() []string {
	var names []string
	for i := range env.namespaces {
		names = append(names, fmt.Sprintf("bench-scan-%02d", i))
	}
	return names
}

// createJobs creates the Jobs, unless they exist from an earlier run.
func (env *environment) createJobs(ctx context.Context, c *harness.Cluster) {
	names := env.namespaceNames()
	if listAllJobs(ctx, c, names, env.jobs) == nil {
		return
	}
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		harness.Check(client.IgnoreAlreadyExists(c.Create(ctx, ns)))
	}
	var made atomic.Int64
	group, requests := errgroup.WithContext(ctx)
	group.SetLimit(2 * harness.CreateConcurrency)
	for i := range env.jobs {
		group.Go(func() error {
			err := c.Create(requests, newJob(names[i%len(names)], i))
			if n := made.Add(1); n%1000 == 0 {
				harness.PrintProgress("%d of %d Jobs created", n, env.jobs)
			}
			return client.IgnoreAlreadyExists(err)
		})
	}
	harness.Check(group.Wait())
}

// newJob returns a Job of typical size, with a command, an environment, resources and a volume.
func newJob(namespace string, i int) *batchv1.Job {
	environment := []corev1.EnvVar{{Name: "JOB_NUMBER", Value: strconv.Itoa(i)}}
	for _, name := range []string{"DATABASE_URL", "BUCKET", "REGION", "LOG_LEVEL"} {
		environment = append(environment, corev1.EnvVar{Name: name, Value: strings.ToLower(name) + ".example"})
	}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	labels := map[string]string{"app.kubernetes.io/name": "report", "app.kubernetes.io/part-of": "warehouse", "team": namespace}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%06d", i), Namespace: namespace, Labels: labels},
		Spec: batchv1.JobSpec{
			ManagedBy:    new(unusedJobManager),
			BackoffLimit: new(int32(3)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "registry.example/warehouse/report:1.2.3",
						Command: []string{"report", "--from", "yesterday"}, Env: environment,
						Resources:    corev1.ResourceRequirements{Requests: requests},
						VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
					}},
					Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

func (env *environment) deleteReports(ctx context.Context, c *harness.Cluster) {
	for _, name := range env.namespaceNames() {
		harness.Check(c.DeleteAllOf(ctx, &v1alpha1.JobReport{}, client.InNamespace(name)))
	}
}
