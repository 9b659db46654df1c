// Command sequences measures how the operator runs SequentialJobs, on a real control plane with simulated nodes, compared with a bare
// client loop that creates the same Jobs with one watch and stores nothing.
//
//	go run ./test/bench/sequences                    1, 100 and 1,000 sequences of 3 steps
//	go run ./test/bench/sequences -loads 100x10s     100 sequences with steps of 5 to 15 s
//	go run ./test/bench/sequences -jobset            compares JobSet with the bare loop too; it is built from its module
//
// A load is a number of sequences and the average duration of their steps. With long steps, the control plane has capacity to spare, as in
// most clusters, and the operator is what is measured. With steps of 100 ms it has none, and the benchmark measures how many more requests
// the operator makes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/bench/harness"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const bareLoopRole = "bare-loop"

type sequenceLoad struct {
	sequences, steps int
	// stepDuration is the average duration of a step. The steps of one sequence have equal durations, from half to one and a half times the
	// average across sequences, because sequences that all end together would cause a load peak.
	stepDuration time.Duration
}

// subject is what runs the sequences.
type subject struct {
	name string
	// start starts the measured process for a namespace.
	start func(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) *testenv.Process
	// newSequence returns the object of a sequence, and areRecorded reports whether the process has recorded the end of all of them; nil if
	// the process creates the Jobs itself.
	newSequence func(l sequenceLoad, i int, ns string) client.Object
	areRecorded func(ctx context.Context, c client.Reader, ns string) (bool, error)
}

var bareLoop = subject{name: "bare loop", start: func(ctx context.Context, c *harness.Cluster, l sequenceLoad, ns string) *testenv.Process {
	load := strconv.Itoa(l.sequences) + "x" + l.stepDuration.String()
	return harness.Must(testenv.StartProcess(harness.SelfCommand(ctx, bareLoopRole, c.Kubeconfig, ns, strconv.Itoa(l.steps), load)))
}}

func newOperator(binary string) subject {
	return subject{
		name: "operator",
		start: func(ctx context.Context, c *harness.Cluster, _ sequenceLoad, ns string) *testenv.Process {
			return harness.Environment(ns).StartOperator(ctx, binary, c).Process
		},
		newSequence: sequenceLoad.newSequentialJob,
		areRecorded: func(ctx context.Context, c client.Reader, ns string) (bool, error) {
			var list v1alpha1.SequentialJobList
			err := c.List(ctx, &list, client.InNamespace(ns))
			return !slices.ContainsFunc(list.Items, func(sj v1alpha1.SequentialJob) bool {
				return sj.Status.Phase != v1alpha1.PhaseCompleted || len(sj.Finalizers) > 0
			}), err
		},
	}
}

func main() {
	loads := flag.String("loads", "1x1s,100x10s,1000x30s,100x100ms,1000x100ms", "comma-separated loads, SEQUENCESxSTEPDURATION, one measurement each")
	steps := flag.Int("steps", 3, "number of steps of a sequence")
	withJobSet := flag.Bool("jobset", false, "measure JobSet too")
	harness.RunOnCluster(func(ctx context.Context, c *harness.Cluster, operator string) error {
		subjects := []subject{newOperator(operator)}
		if *withJobSet {
			subjects = append(subjects, buildJobSet(ctx, c))
		}
		for text := range strings.SplitSeq(*loads, ",") {
			load := parseLoad(text, *steps)
			bare := measureLoad(ctx, c, load, &bareLoop)
			fmt.Printf("\n%s\n", load)
			for i := range subjects {
				printReport(load, subjects[i].name, measureLoad(ctx, c, load, &subjects[i]), bare)
			}
		}
		return nil
	}, map[string]harness.ProcessRole{bareLoopRole: runBareLoop})
}

func printReport(l sequenceLoad, name string, measured, bare *loadResult) {
	w := harness.NewTable("\t" + name + "\tbare loop\tratio\t")
	defer w.Flush()
	row := func(label string, value func(r *loadResult) float64) {
		harness.PrintComparison(w, label, value(measured), value(bare))
	}
	steps := float64(l.jobCount())
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	row("makespan, s", func(r *loadResult) float64 { return r.makespan.Seconds() })
	row("transition p50, ms", func(r *loadResult) float64 { return milliseconds(harness.Quantile(r.transitions, .5)) })
	row("transition p99, ms", func(r *loadResult) float64 { return milliseconds(harness.Quantile(r.transitions, .99)) })
	row(createdJobs+" per step", func(r *loadResult) float64 { return r.requests[createdJobs] / steps })
	row("further requests per step", func(r *loadResult) (sum float64) {
		for _, kind := range furtherWrites {
			sum += r.requests[kind] / steps
		}
		return sum
	})
	for _, kind := range furtherWrites {
		row("  "+kind, func(r *loadResult) float64 { return r.requests[kind] / steps })
	}
	row(reads+" per step", func(r *loadResult) float64 { return r.requests[reads] / steps })
	row("CPU s per 1,000 steps", func(r *loadResult) float64 { return r.cpu.Seconds() / steps * 1000 })
	row("peak RSS, MB", func(r *loadResult) float64 { return float64(r.peakRSS) / 1e6 })
}

const measurementTimeout = 20 * time.Minute

type loadResult struct {
	makespan    time.Duration
	transitions []time.Duration
	requests    apiRequests
	cpu         time.Duration
	peakRSS     int64 // bytes
}

// measureLoad runs the load once in a new namespace.
func measureLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, by *subject) *loadResult {
	ctx, cancel := context.WithTimeout(ctx, measurementTimeout)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	harness.Check(c.Create(ctx, ns))
	defer deleteNamespace(ctx, c, ns)
	o := startObserver(ctx, c, ns.Name)
	before := countRequests(ctx, c)
	startedAt := time.Now()
	process := by.start(ctx, c, l, ns.Name)
	var idle time.Duration
	if by.newSequence != nil {
		startedAt = time.Now() // the start of the process does not count
		idle = harness.Must(harness.ProcessCPUTime(process.Pid()))
		harness.Check(harness.CreateAll(ctx, c, l.sequences, func(i int) client.Object { return by.newSequence(l, i, ns.Name) }))
	}
	l.waitUntilFinished(ctx, o, process)
	if by.areRecorded != nil {
		// Each call lists all objects, which would disturb what is measured.
		harness.Check(harness.PollEvery(ctx, time.Second, time.Minute, func() (bool, error) { return by.areRecorded(ctx, c, ns.Name) }))
	}
	process.Stop() // the bare loop may have ended
	cpu, peakRSS := harness.ExitedProcessUsage(process.State())
	after := countRequests(ctx, c)
	for kind := range after {
		after[kind] -= before[kind]
	}
	transitions, last := o.transitionResults()
	return &loadResult{makespan: last.Sub(startedAt), transitions: transitions, requests: after, cpu: cpu - idle, peakRSS: peakRSS}
}

// waitUntilFinished waits for all Jobs. It fails if the measured process does: nothing would create the other Jobs.
func (l sequenceLoad) waitUntilFinished(ctx context.Context, o *jobObserver, process *testenv.Process) {
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	harness.Check(harness.PollUntil(ctx, measurementTimeout, func() (bool, error) {
		select {
		case <-progress.C:
			harness.PrintProgress("%d of %d Jobs have ended", o.finishedCount(), l.jobCount())
		case <-process.Exited():
			if !process.State().Success() {
				return false, fmt.Errorf("the measured process: %s", process.State())
			}
		default:
		}
		return o.finishedCount() >= l.jobCount(), nil
	}))
}

// deleteNamespace deletes the objects of the measurement and waits until its Pods are deleted,
// so that the next measurement starts with an idle control plane.
func deleteNamespace(ctx context.Context, c *harness.Cluster, ns *corev1.Namespace) {
	ctx = context.WithoutCancel(ctx)
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	_ = c.DeleteAllOf(ctx, &v1alpha1.SequentialJob{}, client.InNamespace(ns.Name), background)
	_ = c.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(ns.Name), background)
	_ = c.Delete(ctx, ns)
	if err := harness.PollUntil(ctx, measurementTimeout, func() (bool, error) {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace(ns.Name), client.Limit(1))
		return len(pods.Items) == 0, err
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench: deleting the namespace:", err)
	}
}

// jobObserver watches the Jobs of a namespace. A transition is the time from the event that shows the end of a Job to the event that shows
// the sequence's next Job. Both events come through the same watch, so its delay cancels out.
type jobObserver struct {
	harness.Observer

	lastJobEnd   map[string]time.Time // by sequence
	finishedJobs map[string]bool      // by Job
	transitions  []time.Duration
	lastEnd      time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) *jobObserver {
	o := &jobObserver{lastJobEnd: map[string]time.Time{}, finishedJobs: map[string]bool{}}
	o.WatchLists(ctx, c, o.recordEvent, []client.ObjectList{&batchv1.JobList{}}, client.InNamespace(ns))
	return o
}

func (o *jobObserver) recordEvent(event watch.Event, now time.Time) {
	job, isJob := event.Object.(*batchv1.Job)
	if !isJob {
		return
	}
	owner := job.Labels[labelSequence]
	if controller := metav1.GetControllerOfNoCopy(job); controller != nil {
		owner = controller.Name
	}
	switch {
	case event.Type == watch.Added:
		if ended, ok := o.lastJobEnd[owner]; ok {
			o.transitions = append(o.transitions, now.Sub(ended))
		}
	case event.Type == watch.Modified && sequentialjob.IsTerminal(job) && !o.finishedJobs[job.Name]:
		o.finishedJobs[job.Name] = true
		o.lastJobEnd[owner], o.lastEnd = now, now
	}
}

func (o *jobObserver) finishedCount() int {
	o.Lock()
	defer o.Unlock()
	return len(o.finishedJobs)
}

func (o *jobObserver) transitionResults() (transitions []time.Duration, last time.Time) {
	o.Lock()
	defer o.Unlock()
	return o.transitions, o.lastEnd
}

// apiRequests counts requests by what they write, and reads, according to the API server. Only the measured process creates
// Jobs, creates Pods in dry runs, patches and updates the objects of sequences and writes events of the newer API. Controllers of the cluster
// read, too: compare with the bare loop.
type apiRequests map[string]float64

const (
	createdJobs = "created Jobs"
	reads       = "GETs and LISTs"
)

// furtherWrites are the kinds of requests beyond those that create Jobs.
var furtherWrites = []string{"updates", "events", "dry runs of Jobs", "dry runs of Pods"}

func countRequests(ctx context.Context, c *harness.Cluster) apiRequests {
	clientset := harness.Must(kubernetes.NewForConfig(c.Config))
	body := harness.Must(clientset.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx))
	defer body.Close()
	families := harness.Must(harness.ParseMetrics(body))
	w := apiRequests{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		w[kindOfRequest(metric)] += metric.GetCounter().GetValue()
	}
	return w
}

// kindOfRequest returns what the requests of a metric write, reads, or "" if they are not counted.
func kindOfRequest(metric *dto.Metric) string {
	label := func(name string) string { return harness.MetricLabel(metric, name) }
	isDryRun := label("dry_run") != ""
	kind := label("verb") + " " + label("resource")
	switch {
	case kind == "POST jobs" && isDryRun:
		return "dry runs of Jobs"
	case kind == "POST pods" && isDryRun:
		return "dry runs of Pods"
	case kind == "POST jobs":
		return createdJobs
	case slices.Contains([]string{"PATCH sequentialjobs", "PUT sequentialjobs", "PATCH jobsets", "PUT jobsets"}, kind): // and their statuses
		return "updates"
	case label("group") == "events.k8s.io" && (label("verb") == "POST" || label("verb") == "PATCH"):
		return "events"
	case label("verb") == "GET" || label("verb") == "LIST":
		return reads
	}
	return ""
}

// Labels that identify the sequence and the step of a Job of the bare loop.
const (
	labelSequence = "bench.yardmaster.dev/sequence"
	labelStep     = "bench.yardmaster.dev/step"
)

// parseLoad parses a load such as "100x10s".
func parseLoad(text string, steps int) sequenceLoad {
	sequences, duration, _ := strings.Cut(text, "x")
	return sequenceLoad{sequences: harness.Must(strconv.Atoi(sequences)), steps: steps, stepDuration: harness.Must(time.ParseDuration(duration))}
}

func (l sequenceLoad) String() string {
	return fmt.Sprintf("%d sequences of %d steps of %s", l.sequences, l.steps, l.stepDuration)
}

// stepDurationOf returns the duration of the steps of a sequence. It is the same in every measurement.
func (l sequenceLoad) stepDurationOf(sequence int) time.Duration {
	if l.sequences == 1 {
		return l.stepDuration
	}
	return l.stepDuration/2 + l.stepDuration*time.Duration(sequence)/time.Duration(l.sequences)
}

func (l sequenceLoad) jobCount() int { return l.sequences * l.steps }

func sequenceName(i int) string { return fmt.Sprintf("s%04d", i) }
func stepName(i int) string     { return fmt.Sprintf("step-%d", i) }

func (l sequenceLoad) newSequentialJob(i int, ns string) client.Object {
	var steps []string
	for step := range l.steps {
		steps = append(steps, stepName(step))
	}
	return harness.Environment(ns).NewSequentialJob(sequenceName(i), l.stepDurationOf(i), steps...)
}

// newJob returns one step for the bare loop.
func (l sequenceLoad) newJob(sequence, step int, ns string) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: harness.Environment(ns).ObjectMeta(sequenceName(sequence) + "-" + stepName(step))}
	job.Labels = map[string]string{labelSequence: strconv.Itoa(sequence), labelStep: strconv.Itoa(step)}
	job.Spec.BackoffLimit = new(int32(0))
	job.Spec.Template = l.podTemplate(sequence, step)
	return job
}

// runBareLoop is the least that can run sequences: it watches Jobs and creates the next one
// when one has ended. It stores no status, so a restart would lose its state.
func runBareLoop(ctx context.Context, args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("%s KUBECONFIG NAMESPACE STEPS LOAD", args[0])
	}
	c := harness.Must(harness.ConnectToCluster(args[1]))
	ns, l := args[2], parseLoad(args[4], harness.Must(strconv.Atoi(args[3])))
	jobs := harness.Must(c.Watch(ctx, &batchv1.JobList{}, client.InNamespace(ns)))
	defer jobs.Stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return harness.CreateAll(ctx, c, l.sequences, func(i int) client.Object { return l.newJob(i, 0, ns) })
	})
	group.Go(func() error {
		ended := map[string]bool{}
		for event := range jobs.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && sequentialjob.IsTerminal(job) && !ended[job.Name] {
				ended[job.Name] = true
				group.Go(func() error { return l.createNextJob(ctx, c, job) })
			}
			if len(ended) == l.jobCount() {
				return nil
			}
		}
		return errors.New("the watch of Jobs ended")
	})
	return group.Wait()
}

func (l sequenceLoad) createNextJob(ctx context.Context, c client.Client, ended *batchv1.Job) error {
	sequence, err := strconv.Atoi(ended.Labels[labelSequence])
	if err != nil {
		return err
	}
	step, err := strconv.Atoi(ended.Labels[labelStep])
	if err != nil || step+1 >= l.steps {
		return err
	}
	return c.Create(ctx, l.newJob(sequence, step+1, ended.Namespace))
}
