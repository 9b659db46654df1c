package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

const measurementTimeout = 20 * time.Minute

type loadResult struct {
	makespan    time.Duration
	transitions []time.Duration
	writes      apiWrites
	cpu         time.Duration
	peakRSS     int64 // bytes
}

// measureLoad runs the load once in a new namespace, with this binary of the operator, or if it is empty with the bare loop.
func measureLoad(ctx context.Context, c *harness.Cluster, l sequenceLoad, operator string) (*loadResult, error) {
	ctx, cancel := context.WithTimeout(ctx, measurementTimeout)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	if err := c.Create(ctx, ns); err != nil {
		return nil, err
	}
	defer deleteNamespace(ctx, c, ns)
	o, err := startObserver(ctx, c, ns.Name)
	if err != nil {
		return nil, err
	}
	before, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	startedAt := time.Now()
	process, err := l.startProcess(ctx, c, operator, ns.Name)
	if err != nil {
		return nil, err
	}
	var idle time.Duration
	if operator != "" {
		startedAt = time.Now() // the operator's start does not count
		if idle, err = harness.ProcessCPUTime(process.Pid()); err != nil {
			return nil, err
		}
		if err := l.createObjects(ctx, c, func(i int) client.Object { return l.newSequentialJob(i, ns.Name) }); err != nil {
			return nil, err
		}
	}
	if err := l.waitUntilFinished(ctx, c, o, ns.Name); err != nil {
		return nil, err
	}
	process.Stop() // the bare loop may have ended
	cpu, peakRSS := harness.ExitedProcessUsage(process.State())
	after, err := countWrites(ctx, c)
	if err != nil {
		return nil, err
	}
	for kind := range after {
		after[kind] -= before[kind]
	}
	transitions, last := o.transitionResults()
	return &loadResult{makespan: last.Sub(startedAt), transitions: transitions, writes: after, cpu: cpu - idle, peakRSS: peakRSS}, nil
}

// waitUntilFinished waits until all Jobs have ended and the operator has recorded that.
func (l sequenceLoad) waitUntilFinished(ctx context.Context, c *harness.Cluster, o *jobObserver, ns string) error {
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	err := harness.PollUntil(ctx, measurementTimeout, func() (bool, error) {
		select {
		case <-progress.C:
			harness.PrintProgress("%d of %d Jobs have ended", o.finishedCount(), l.jobCount())
		default:
		}
		return o.finishedCount() >= l.jobCount(), nil
	})
	if err != nil {
		return err
	}
	return harness.PollUntil(ctx, time.Minute, func() (bool, error) {
		var list v1alpha1.SequentialJobList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(list.Items, func(sj v1alpha1.SequentialJob) bool {
			return sj.Status.Phase != v1alpha1.PhaseCompleted || len(sj.Finalizers) > 0
		}), nil
	})
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
		if err := c.List(ctx, &pods, client.InNamespace(ns.Name), client.Limit(1)); err != nil {
			return false, err
		}
		return len(pods.Items) == 0, nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench: deleting the namespace:", err)
	}
}

// jobObserver watches the Jobs of a namespace. A transition is the time from the event that shows the end of a Job to the event that shows
// the sequence's next Job. Both events come through the same watch, so its delay cancels out.
type jobObserver struct {
	mu           sync.Mutex
	lastJobEnd   map[string]time.Time // by sequence
	finishedJobs map[string]bool      // by Job
	transitions  []time.Duration
	lastEnd      time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) (*jobObserver, error) {
	o := &jobObserver{lastJobEnd: map[string]time.Time{}, finishedJobs: map[string]bool{}}
	ignoreEnd := func(error) {} // the measurement would time out
	return o, harness.WatchLists(ctx, c, o.recordEvent, ignoreEnd, []client.ObjectList{&batchv1.JobList{}}, client.InNamespace(ns))
}

func (o *jobObserver) recordEvent(event watch.Event, now time.Time) {
	job, isJob := event.Object.(*batchv1.Job)
	if !isJob {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := job.Labels[labelSequence] + job.Labels[v1alpha1.LabelSequentialJob]
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

// finishedCount returns the number of Jobs that have ended.
func (o *jobObserver) finishedCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.finishedJobs)
}

func (o *jobObserver) transitionResults() (transitions []time.Duration, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.transitions, o.lastEnd
}

// apiWrites counts requests to write by what they write, according to the API server. Only the measured process creates
// Jobs, creates Pods in dry runs, patches and updates SequentialJobs and writes events of the newer API.
type apiWrites map[string]float64

const createdJobs = "created Jobs"

// furtherWrites are the kinds of requests beyond those that create Jobs.
var furtherWrites = []string{"updates", "events", "dry runs of Jobs", "dry runs of Pods"}

func countWrites(ctx context.Context, c *harness.Cluster) (apiWrites, error) {
	clientset, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	body, err := clientset.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return nil, err
	}
	w := apiWrites{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		w[kindOfWrite(metric)] += metric.GetCounter().GetValue()
	}
	return w, nil
}

// kindOfWrite returns what the requests of a metric write, or "" if that is not counted.
func kindOfWrite(metric *dto.Metric) string {
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
	case kind == "PATCH sequentialjobs", kind == "PUT sequentialjobs": // and their statuses
		return "updates"
	case label("group") == "events.k8s.io" && (label("verb") == "POST" || label("verb") == "PATCH"):
		return "events"
	}
	return ""
}
